//! Tasks on a host that lends its wakers: an executor that polls a body at any
//! time, with any waker, against those who wake the task.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use kinfolk_core::host::Body;
use loom::thread;

use crate::host::{finish_lent, lending_tree};

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll(body: &mut Body, bell: &Arc<Bell>) -> Poll<()> {
    let waker = Waker::from(bell.clone());
    Pin::new(body).poll(&mut Context::from_waker(&waker))
}

/// A body is polled with another waker while its task is woken: the waker of the
/// last poll is woken, if that poll did not find what there was to find.
#[test]
fn lent_poll_vs_wake() {
    loom::model(|| {
        let (tree, bodies) = lending_tree();
        let shared = Arc::new(loom::sync::Mutex::new((false, None::<Waker>)));
        let inside = shared.clone();
        let job = tree.root_scope().launch(std::future::poll_fn(move |cx| {
            let mut state = inside.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        }));
        let mut body = bodies.take();
        let [first, last] = [(); 2].map(|()| Arc::new(Bell::default()));
        assert!(poll(&mut body, &first).is_pending());
        let waking = thread::spawn(move || {
            let waker = {
                let mut state = shared.lock().unwrap();
                state.0 = true;
                state.1.take()
            };
            waker.unwrap().wake();
        });
        let over = poll(&mut body, &last).is_ready();
        waking.join().unwrap();
        if !over {
            assert!(last.0.load(SeqCst) > 0, "a lost wake");
            assert!(poll(&mut body, &last).is_ready());
        }
        assert!(job.is_ended(), "{}", tree.snapshot());
        drop((job, body));
        finish_lent(tree);
    });
}

/// A body is dropped while its task is woken: the task ends once, and is not
/// touched after that.
#[test]
fn lent_drop_vs_wake() {
    // A drop takes many steps: two preemptions, not three.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (tree, bodies) = lending_tree();
        let kept = Arc::new(std::sync::Mutex::new(None));
        let keeps = kept.clone();
        let job = tree.root_scope().launch(std::future::poll_fn(move |cx| {
            *keeps.lock().unwrap() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        let mut body = bodies.take();
        let bell = Arc::new(Bell::default());
        assert!(poll(&mut body, &bell).is_pending());
        let waker = kept.lock().unwrap().take().unwrap();
        let waking = thread::spawn(move || waker.wake());
        drop(body);
        waking.join().unwrap();
        assert!(job.is_ended(), "{}", tree.snapshot());
        drop(job);
        finish_lent(tree);
    });
}
