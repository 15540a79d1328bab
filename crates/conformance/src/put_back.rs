//! Interrupts that a wait has taken and does not act upon: its operation ended
//! well all the same. The next point of the task tells. request-1, request-2.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::future::{join, poll_fn};
use kinfolk_core::kit::Point;
use kinfolk_core::{Cancelled, Error, ErrorKind, Job, checkpoint, current_job, park, spawn};

use crate::interrupted::words;
use kinfolk_testkit::{Gate, Lab};

/// A wait that hears what it is asked and ends when `gate` opens, not before:
/// what an operation does that the system is still busy with.
struct Stubborn {
    gate: Pin<Box<dyn Future<Output = ()> + Send>>,
    point: Point,
    told: Option<Cancelled>,
    /// What it was told still stood in its last poll.
    stood: bool,
}

impl Stubborn {
    fn new(gate: &Gate) -> Stubborn {
        let gate = gate.clone();
        Stubborn {
            gate: Box::pin(async move { gate.wait().await }),
            point: Point::new(),
            told: None,
            stood: false,
        }
    }
}

impl Future for Stubborn {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        if this.told.is_none()
            && let Poll::Ready(Err(told)) = this.point.poll_enter(cx)
        {
            this.told = Some(told);
        }
        this.stood = (this.told.as_ref()).is_some_and(|told| this.point.still_told(told));
        if this.gate.as_mut().poll(cx).is_pending() {
            this.point.pending(cx);
            return Poll::Pending;
        }
        this.point.done();
        if let Some(told) = this.told.take() {
            this.point.tell_again(&told);
        }
        Poll::Ready(this.stood)
    }
}

impl Drop for Stubborn {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            self.point.tell_again(&told);
        }
    }
}

/// request-1: what it took is for the next point of the task, once, whatever
/// became of the words.
pub async fn request_1_what_was_not_acted_upon_is_told_again(lab: Lab) {
    let gate = Gate::new();
    let wait = Stubborn::new(&gate);
    let task = spawn(async move {
        assert!(wait.await, "it stood to the end");
        let told = checkpoint().await.expect_err("told again");
        // Copies of what was told put nothing back.
        Point::new().tell_again(&told.clone());
        let once_more = checkpoint().await.expect_err("put back by hand");
        Point::new().tell_again(&told);
        checkpoint().await.expect("it was put back once");
        words(&once_more).to_owned()
    });
    lab.settle().await;
    assert!(task.interrupt("stop"));
    lab.settle().await;
    gate.open();
    assert_eq!(task.await.unwrap(), "stop");
}

/// request-2: a wait that puts back what it took says nothing of a later one that
/// was heard beside it, and was passed on by somebody.
pub async fn request_2_what_is_put_back_is_what_was_taken(lab: Lab) {
    let [gate, enough, end] = std::array::from_fn(|_| Gate::new());
    let half_way: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = half_way.clone();
    let (wait, give_up, until) = (Stubborn::new(&gate), enough.clone(), end.clone());
    let top = spawn(async move {
        let middle = spawn(async move {
            let beside = async {
                let told = park().await.expect_err("the second");
                assert_eq!(words(&told), "second");
            };
            join(wait, beside).await;
            until.wait().await;
        });
        *tell.lock().unwrap() = Some(middle.job());
        let mut middle = middle;
        let mut open = Box::pin(async move { give_up.wait().await });
        poll_fn(|cx| {
            assert!(Pin::new(&mut middle).poll(cx).is_pending());
            open.as_mut().poll(cx)
        })
        .await;
        drop(middle);
        checkpoint().await
    });
    lab.settle().await;
    let middle = half_way.lock().unwrap().take().expect("it was told");
    assert!(middle.interrupt("first"));
    lab.settle().await;
    assert!(top.interrupt("second"));
    lab.settle().await;
    gate.open();
    lab.settle().await;
    enough.open();
    lab.settle().await;
    end.open();
    top.await.expect("it was heard below");
}

/// request-1: taken back meanwhile it stands no more, and does not return with a
/// later one.
pub async fn request_1_what_was_taken_back_is_not_put_back(lab: Lab) {
    let [gate, also] = std::array::from_fn(|_| Gate::new());
    let (wait, then) = (Stubborn::new(&gate), also.clone());
    let task = spawn(async move {
        let beside = async {
            then.wait().await;
            checkpoint().await.expect_err("the second")
        };
        let (stood, told) = join(wait, beside).await;
        assert_eq!(words(&told), "second");
        checkpoint().await.expect("the first was taken back");
        Ok::<_, Error>(stood)
    });
    lab.settle().await;
    assert!(task.interrupt("first"));
    lab.settle().await;
    assert_eq!(task.job().uninterrupt(), 0);
    assert!(task.interrupt("second"));
    also.open();
    lab.settle().await;
    gate.open();
    assert!(!task.await.unwrap(), "it stood no more");
}

/// request-1: a wait that was told in one task and dropped in another, or in
/// none, gives it back to the one it was asked of.
pub async fn request_1_it_goes_back_to_the_task_it_was_asked_of(lab: Lab) {
    for in_a_job in [true, false] {
        let [gate, go] = std::array::from_fn(|_| Gate::new());
        let handed: Arc<Mutex<Option<Stubborn>>> = Arc::default();
        let (hand, until) = (handed.clone(), go.clone());
        let mut wait = Some(Stubborn::new(&gate));
        let asked = spawn(async move {
            poll_fn(|cx| {
                let waits = wait.as_mut().expect("it is here until it was told");
                assert!(Pin::new(&mut *waits).poll(cx).is_pending());
                if waits.told.is_none() {
                    return Poll::Pending;
                }
                *hand.lock().unwrap() = wait.take();
                Poll::Ready(())
            })
            .await;
            until.wait().await;
            checkpoint().await
        });
        lab.settle().await;
        assert!(asked.interrupt("stop"));
        lab.settle().await;
        let wait = handed.lock().unwrap().take().expect("it was told");
        let other = spawn(async move {
            assert!(current_job().expect("a task").interrupt("its own"));
            let told = checkpoint().await.expect_err("its own");
            assert!(!wait.point.still_told(wait.told.as_ref().expect("told")));
            match in_a_job {
                true => drop(wait),
                false => std::thread::spawn(move || drop(wait)).join().unwrap(),
            }
            checkpoint().await.expect("heard once");
            words(&told).to_owned()
        });
        assert_eq!(other.await.unwrap(), "its own");
        go.open();
        let stopped = asked.await.expect_err("nobody has acted upon it");
        assert_eq!(stopped.reason().expect("a reason").text(), Some("stop"));
    }
}

/// request-2: taken back and asked anew while the answer of the task it was
/// passed on to waits to be seen: that answer is not the new one's.
pub async fn request_2_an_answer_to_what_was_taken_back(lab: Lab) {
    let go = Gate::new();
    let until = go.clone();
    let below: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = below.clone();
    let top = spawn(async move {
        let leaf = spawn(async { Ok::<_, Error>(park().await?) });
        *tell.lock().unwrap() = Some(leaf.job());
        let mut leaf = Some(leaf);
        // Passes it on, and is not polled while the leaf ends.
        poll_fn(|cx| {
            let passed = leaf.as_mut().expect("it is here");
            let _ = Pin::new(passed).poll(cx);
            match current_job().expect("a task").interrupts() {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
        until.wait().await;
        let second = checkpoint().await.expect_err("the second");
        assert_eq!(words(&second), "second");
        let error = leaf.take().expect("it is here").await.expect_err("stopped");
        Ok::<_, Error>(error.kind())
    });
    lab.settle().await;
    assert!(top.interrupt("first"));
    lab.settle().await;
    assert!(below.lock().unwrap().take().expect("a leaf").is_ended());
    assert_eq!(top.job().uninterrupt(), 0);
    assert!(top.interrupt("second"));
    go.open();
    assert_eq!(top.await.unwrap(), ErrorKind::Stopped);
}
