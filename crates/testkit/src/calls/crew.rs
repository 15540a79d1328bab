//! The threads on which a simulation makes blocking calls. The thread that runs the
//! simulations keeps them, so that the next seed has them again.

use std::cell::RefCell;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use kinfolk_core::host::{Activity, ThreadFiles};

/// How many threads are kept that have nothing to do.
const KEPT: usize = 16;

type BoxedCall = Box<dyn FnOnce() + Send>;

/// A thread for blocking calls. It leaves when this is dropped, and when it has done
/// what it was given.
pub(crate) struct Thread {
    work: Sender<BoxedCall>,
    place: Arc<OnceLock<ThreadFiles>>,
}

std::thread_local! {
    /// Of this thread, and not of the process: what a call prints belongs to the test that
    /// has started its thread.
    static IDLE: RefCell<Vec<Thread>> = const { RefCell::new(Vec::new()) };

    static HERE: Arc<ThreadFiles> = Arc::new(ThreadFiles::here());
}

/// Where the system tells about this thread.
pub(crate) fn here() -> Arc<ThreadFiles> {
    HERE.try_with(Arc::clone)
        .unwrap_or_else(|_| Arc::new(ThreadFiles::here()))
}

impl Thread {
    /// One that has nothing to do.
    pub(crate) fn take() -> io::Result<Thread> {
        let idle = IDLE.try_with(|idle| idle.borrow_mut().pop()).ok().flatten();
        idle.map_or_else(Thread::start, Ok)
    }

    fn start() -> io::Result<Thread> {
        let (work, orders) = channel();
        let place = Arc::new(OnceLock::new());
        let own = place.clone();
        std::thread::Builder::new()
            .name("kinfolk-blocking".into())
            .spawn(move || serve(&orders, &own))?;
        Ok(Thread { work, place })
    }

    /// It has nothing to do any more.
    pub(crate) fn give_back(self) {
        // Outside the borrow: what is dropped here is one too many.
        let _ = IDLE.try_with(move |idle| {
            if idle.borrow().len() < KEPT {
                idle.borrow_mut().push(self);
            }
        });
    }

    /// Does `work` on it.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        // It is there as long as this is.
        let _ = self.work.send(Box::new(work));
    }

    /// What it does, as the system sees it.
    pub(crate) fn look(&self) -> Activity {
        self.place.get().map_or(Activity::Runs, ThreadFiles::look)
    }

    /// True if it sleeps until another thread wakes it.
    pub(crate) fn waits(&self) -> bool {
        self.place.get().is_some_and(ThreadFiles::waits)
    }
}

fn serve(orders: &Receiver<BoxedCall>, place: &OnceLock<ThreadFiles>) {
    let _ = place.set(ThreadFiles::here());
    while let Ok(work) = orders.recv() {
        // What a call does of the user's is contained; were something of ours to unwind,
        // the thread goes on.
        kinfolk_core::host::contained(work);
    }
}
