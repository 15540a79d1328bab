//! [`BlockingCall`]: a call that must block, as a host gets it. What makes one, and waits
//! for it, is [`blocking`](crate::blocking()).

use std::fmt;
use std::panic::Location;

use crate::base::questions::Asks;
use crate::record::header::Site;

/// A blocking call, as a host receives it. If it is dropped without having been run, the
/// call never happens, and its waiter gets the error that the host is gone.
#[must_use = "a call that is not run never returns"]
pub struct BlockingCall {
    pub(crate) work: Box<dyn RunCall>,
    pub(crate) site: Site,
}

impl BlockingCall {
    /// Runs it, on this thread. A panic in it goes to the future that waits for it; if that
    /// is gone, to the failure hook.
    pub fn run(self) {
        self.work.run(None);
    }

    /// The same, and `asks` is called at each [`Caller::is_cancelled`](crate::Caller::is_cancelled), on the thread that
    /// asks and before it has its answer: a host with virtual time may let others go on
    /// there. It is given the flag that will be the answer.
    pub fn run_asking(self, asks: Asks) {
        self.work.run(Some(asks));
    }

    /// Where it was asked for, for reports.
    pub fn site(&self) -> &'static Location<'static> {
        self.site.location()
    }
}

impl fmt::Debug for BlockingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingCall")
    }
}

/// A call with its types taken away.
pub(crate) trait RunCall: Send {
    fn run(self: Box<Self>, asks: Option<Asks>);
}
