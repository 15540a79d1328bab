//! [`RealGrace`]: the grace of a shutdown in real time, for hosts whose clock, or whose
//! threads, may hold it up.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the clock is moved once the grace is over.
const PACE: Duration = Duration::from_millis(10);

/// For a host that shuts down, and whose clock is virtual or whose threads are not its
/// own. A virtual clock waits for blocking calls
/// and for threads that hold it. They live in real time, and so they have the grace in
/// real time; one that does not come back by then would keep the shutdown for ever.
/// From then on `jump` is called every few milliseconds, on a thread of its own, until
/// this is dropped.
#[must_use = "dropping it says that the shutdown is over"]
pub struct RealGrace {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl RealGrace {
    /// Begins to count. `jump` moves the clock and fires what is due, whatever holds it.
    pub fn begin(grace: Duration, jump: impl Fn() + Send + 'static) -> RealGrace {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = over.clone();
        let wait = move || {
            let mut most = grace;
            loop {
                let (over, ended) = &*seen;
                let over = over.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = ended.wait_timeout_while(over, most, |over| !*over);
                let (over, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *over {
                    return;
                }
                drop(over);
                jump();
                most = PACE;
            }
        };
        let thread = std::thread::Builder::new()
            .name("kinfolk-grace".into())
            .spawn(wait);
        RealGrace {
            over,
            // Without a thread the shutdown may wait for longer.
            thread: thread.ok(),
        }
    }
}

impl Drop for RealGrace {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.1.notify_one();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A waker may poll the shutdown where it is woken: on that very thread.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for RealGrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RealGrace")
    }
}
