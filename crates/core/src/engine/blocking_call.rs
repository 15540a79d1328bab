//! [`BlockingCall`]: a call that must block, as a host receives it.
//! [`blocking`](crate::blocking()) makes such calls and waits for them.

use std::fmt;
use std::panic::Location;

use crate::base::questions::Asks;
use crate::record::header::Site;

/// A blocking call, as a host receives it. If a call is dropped without having been run,
/// it never happens, and its waiter gets the error that the host is gone.
#[must_use = "a call that is not run never returns"]
pub struct BlockingCall {
    pub(crate) work: Box<dyn RunCall>,
    pub(crate) site: Site,
}

impl BlockingCall {
    /// Runs the call on this thread. A panic in the call goes to the future that waits for
    /// it, or, if that future is gone, to the failure hook.
    pub fn run(self) {
        self.work.run(None);
    }

    /// Runs the call like [`run`](Self::run), and calls `asks` at each
    /// [`Caller::is_cancelled`](crate::Caller::is_cancelled), on the thread of the call and before
    /// `is_cancelled` returns: a host with virtual time may run other calls there. `asks` receives
    /// the flag that `is_cancelled` will return.
    pub fn run_asking(self, asks: Asks) {
        self.work.run(Some(asks));
    }

    /// Where the call was made, for reports.
    pub fn site(&self) -> &'static Location<'static> {
        self.site.location()
    }
}

impl fmt::Debug for BlockingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingCall")
    }
}

/// A call whose types are erased.
pub(crate) trait RunCall: Send {
    fn run(self: Box<Self>, asks: Option<Asks>);
}
