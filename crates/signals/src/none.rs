//! Where signals are none of Unix: none is heard, and Ctrl-C ends the process as it always
//! does there.

use std::io;
use std::panic::Location;
use std::time::Duration;

use kinfolk_core::Tree;

use crate::GraceInRealTime;

/// Hears no signal on this system.
#[derive(Debug)]
pub struct MainSignals(());

impl MainSignals {
    /// Listens to nothing.
    ///
    /// # Errors
    /// None.
    pub fn listen(
        _tree: Tree,
        _site: &'static Location<'static>,
        _grace: Duration,
        _quiet: bool,
        _real_grace: GraceInRealTime,
    ) -> io::Result<MainSignals> {
        Ok(MainSignals(()))
    }

    /// No signal has come.
    pub fn ends(&self) -> Option<(Duration, Duration)> {
        None
    }

    /// No signal has come.
    pub fn first(&self) -> Option<i32> {
        None
    }
}
