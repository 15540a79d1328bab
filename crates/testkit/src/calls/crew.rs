//! The threads on which a simulation makes blocking calls. The thread that runs the
//! simulations keeps them for the next seed.

use std::cell::RefCell;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use kinfolk_core::host::{Activity, ThreadFiles};

/// How many idle threads are kept.
const KEPT: usize = 16;

type BoxedCall = Box<dyn FnOnce() + Send>;

/// A thread for blocking calls. The thread ends when this is dropped and its last
/// call has returned.
pub(crate) struct Thread {
    work: Sender<BoxedCall>,
    place: Arc<OnceLock<ThreadFiles>>,
}

std::thread_local! {
    /// Kept by thread and not by process: what a call prints belongs to the test that has
    /// started its thread.
    static IDLE: RefCell<Vec<Thread>> = const { RefCell::new(Vec::new()) };

    static HERE: Arc<ThreadFiles> = Arc::new(ThreadFiles::here());
}

/// The files in which the system describes this thread.
pub(crate) fn here() -> Arc<ThreadFiles> {
    HERE.try_with(Arc::clone)
        .unwrap_or_else(|_| Arc::new(ThreadFiles::here()))
}

impl Thread {
    /// An idle thread.
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

    /// The thread is idle again.
    pub(crate) fn give_back(self) {
        // Outside the borrow: a thread beyond the number kept is dropped here.
        let _ = IDLE.try_with(move |idle| {
            if idle.borrow().len() < KEPT {
                idle.borrow_mut().push(self);
            }
        });
    }

    /// Runs `work` on this thread.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        // The receiver lives while this value does.
        let _ = self.work.send(Box::new(work));
    }

    /// The activity of the thread, as the system sees it.
    pub(crate) fn look(&self) -> Activity {
        self.place.get().map_or(Activity::Runs, ThreadFiles::look)
    }

    /// True if the thread sleeps until another thread wakes it.
    pub(crate) fn waits(&self) -> bool {
        self.place.get().is_some_and(ThreadFiles::waits)
    }
}

fn serve(orders: &Receiver<BoxedCall>, place: &OnceLock<ThreadFiles>) {
    let _ = place.set(ThreadFiles::here());
    while let Ok(work) = orders.recv() {
        // User code in a call is contained; if code of this crate unwinds, the thread
        // goes on too.
        kinfolk_core::host::contained(work);
    }
}
