//! What the system says of a thread: whether it runs, or waits for another thread. For hosts
//! whose time is virtual: a blocking call that waits does not hold their clock.
//!
//! Linux tells it under `/proc`. Where that is missing every thread counts as running.

use std::fs;
use std::path::{Path, PathBuf};

/// What a thread does, as the system sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or is ready to run; or the system does not tell.
    Runs,
    /// It sleeps until another thread wakes it: in a lock, a channel, a condition, a
    /// join, without a time limit. The number says how often it has run so far: if that
    /// is the same later, it has slept all the while.
    Waits(u64),
    /// It sleeps for another cause: for a time, for a file or a socket.
    Sleeps,
}

/// Where the system tells about a thread. For authors of hosts.
#[derive(Debug)]
pub struct ThreadFiles(Option<PathBuf>);

impl ThreadFiles {
    /// That of this thread.
    pub fn here() -> ThreadFiles {
        let link = fs::read_link("/proc/thread-self");
        ThreadFiles(link.ok().map(|link| Path::new("/proc").join(link)))
    }

    /// True if the thread sleeps until another one wakes it.
    pub fn waits(&self) -> bool {
        matches!(self.look(), Activity::Waits(_))
    }

    /// What it does now. A thread that was woken runs from the moment on in which the call
    /// that woke it has returned.
    pub fn look(&self) -> Activity {
        let Some(place) = &self.0 else {
            return Activity::Runs;
        };
        let read = |name| fs::read_to_string(place.join(name)).unwrap_or_default();
        // The function of the kernel in which it sleeps.
        let sleeps_in = read("wchan");
        if matches!(sleeps_in.as_str(), "" | "0") {
            return Activity::Runs;
        }
        // The number of the system call and its arguments: the fourth one of a futex is
        // its time limit.
        let call = read("syscall");
        let limit = call.split_whitespace().nth(4);
        if !sleeps_in.contains("futex") || limit != Some("0x0") {
            return Activity::Sleeps;
        }
        let ran = read("schedstat");
        let ran = ran.split_whitespace().nth(2).and_then(|n| n.parse().ok());
        Activity::Waits(ran.unwrap_or(0))
    }
}

/// How often this thread has gone to sleep so far; none if the system does not tell.
pub(crate) fn times_asleep() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::RecvTimeoutError::Timeout;
    use std::sync::mpsc::{Receiver, TryRecvError, channel};
    use std::time::Duration;

    /// Runs `f` on a thread until the system says of it what is expected. If the look is
    /// wrong it never does, and the test hangs. What `f` is given ends then.
    fn looked_at(expected: fn(Activity) -> bool, f: fn(&Receiver<()>)) {
        std::thread::scope(|s| {
            let ((tell, told), (go_on, end)) = (channel(), channel());
            s.spawn(move || {
                tell.send(ThreadFiles::here()).unwrap();
                f(&end);
            });
            let place = told.recv().unwrap();
            while !expected(place.look()) {
                std::thread::yield_now();
            }
            drop(go_on);
        });
    }

    #[test]
    fn a_thread_is_seen_to_wait_to_sleep_and_to_run() {
        looked_at(
            |seen| matches!(seen, Activity::Waits(_)),
            |end| assert!(end.recv().is_err()),
        );
        looked_at(
            |seen| seen == Activity::Sleeps,
            |end| while end.recv_timeout(Duration::from_millis(50)) == Err(Timeout) {},
        );
        looked_at(
            |seen| seen == Activity::Runs,
            |end| while end.try_recv() == Err(TryRecvError::Empty) {},
        );
    }

    #[test]
    fn a_sleep_is_counted() {
        let before = times_asleep().expect("Linux tells");
        std::thread::sleep(Duration::from_millis(1));
        assert!(times_asleep().expect("Linux tells") > before);
    }
}
