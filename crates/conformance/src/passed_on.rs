//! Interrupts that are given up on their way: awaits that end before anybody
//! has heard what they passed on, and handles that change hands. request-2.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{Error, ErrorKind, Job, Outcome, Task, checkpoint, park, shield, sleep, spawn};

use crate::interrupted::{parked, words, words_of};
use kinfolk_testkit::{Gate, Lab, Log};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A child that hears nothing until `gate` opens.
fn deaf(gate: &Gate) -> Task<u32> {
    let gate = gate.clone();
    spawn(async move {
        gate.wait().await;
        7
    })
}

/// Awaits the task until `gate` opens, and gives it back unless it has ended.
/// The gate is no point: an interrupt is the await's.
async fn await_until<T>(mut task: Task<T>, gate: &Gate) -> Option<Task<T>> {
    let mut open = Box::pin(gate.wait());
    let mut kept = Some(&mut task);
    let ended = std::future::poll_fn(|cx| {
        let task = kept.as_mut().expect("polled once more");
        if std::pin::Pin::new(&mut **task).poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        open.as_mut().poll(cx).map(|()| false)
    })
    .await;
    (!ended).then_some(task)
}

/// request-2: what went through two awaits and was heard by no job is back where
/// the first of them is given up.
pub async fn request_2_given_up_above_two_awaits(lab: Lab) {
    for by_value in [false, true] {
        let (enough, end) = (Gate::new(), Gate::new());
        let (give_up, until) = (enough.clone(), end.clone());
        let top = spawn(async move {
            let middle = spawn(async move { deaf(&until).await.map(drop) });
            let middle = await_until(middle, &give_up).await.expect("it waits");
            if by_value {
                // Its family keeps it; nobody awaits it any more.
                middle.into_job();
            } else {
                drop(middle);
            }
            let told = checkpoint().await.expect_err("nobody has heard it");
            checkpoint().await.expect("heard once");
            words(&told).to_owned()
        });
        lab.settle().await;
        assert!(top.interrupt("stop"));
        lab.settle().await;
        enough.open();
        lab.settle().await;
        end.open();
        assert_eq!(top.await.unwrap(), "stop");
    }
}

/// request-2: what was heard at the far end of two awaits was heard: whoever
/// gives up above does not hear it again.
pub async fn request_2_heard_below_two_awaits_is_not_given_back(lab: Lab) {
    let (enough, end) = (Gate::new(), Gate::new());
    let (give_up, until) = (enough.clone(), end.clone());
    let top = spawn(async move {
        let middle = spawn(async move {
            let leaf = spawn(async move {
                let told = park().await.expect_err("passed on");
                assert_eq!(words(&told), "stop");
                shield(until.wait()).await
            });
            leaf.await
        });
        let middle = await_until(middle, &give_up).await.expect("it waits");
        drop(middle);
        checkpoint().await
    });
    lab.settle().await;
    assert!(top.interrupt("stop"));
    lab.settle().await;
    enough.open();
    lab.settle().await;
    end.open();
    top.await.expect("it was heard below");
}

/// request-2: one that was heard below is not given back because an older one,
/// passed on by another await, has come home unheard.
pub async fn request_2_an_older_one_comes_home_after_a_newer_was_heard(lab: Lab) {
    let gates: [Gate; 4] = std::array::from_fn(|_| Gate::new());
    let [first, second, enough, end] = gates.clone();
    let half_way: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = half_way.clone();
    let top = spawn(async move {
        let until = end.clone();
        let middle = spawn(async move {
            let silent = await_until(deaf(&until), &first).await.expect("it waits");
            let told = spawn(async move {
                let told = park().await.expect_err("passed on");
                assert_eq!(words(&told), "newer");
                end.wait().await;
            });
            let told = await_until(told, &second).await.expect("it waits");
            drop(silent);
            until.wait().await;
            drop(told);
        });
        *tell.lock().unwrap() = Some(middle.job());
        drop(await_until(middle, &enough).await);
        checkpoint().await
    });
    let [first, second, enough, end] = gates;
    lab.settle().await;
    let middle = half_way.lock().unwrap().take().expect("it was told");
    assert!(middle.interrupt("older"));
    lab.settle().await;
    first.open();
    lab.settle().await;
    assert!(top.interrupt("newer"));
    lab.settle().await;
    second.open();
    lab.settle().await;
    enough.open();
    lab.settle().await;
    end.open();
    top.await.expect("it was heard below");
}

/// request-2: a request that was taken back half-way stays so when another one
/// comes after it.
pub async fn request_2_taken_back_half_way_it_does_not_return_with_another(lab: Lab) {
    let (enough, end) = (Gate::new(), Gate::new());
    let (give_up, until) = (enough.clone(), end.clone());
    let half_way: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = half_way.clone();
    let top = spawn(async move {
        let middle = deaf(&until);
        *tell.lock().unwrap() = Some(middle.job());
        drop(await_until(middle, &give_up).await);
        checkpoint().await
    });
    lab.settle().await;
    assert!(top.interrupt("stop"));
    lab.settle().await;
    let middle = half_way.lock().unwrap().take().expect("it was told");
    assert_eq!(middle.uninterrupt(), 0);
    assert!(middle.interrupt("somebody else's"));
    lab.settle().await;
    enough.open();
    lab.settle().await;
    end.open();
    top.await
        .expect("whoever takes one back half-way answers for it");
}

/// request-2: taken back half-way it is not given back further up.
pub async fn request_2_taken_back_half_way_it_is_gone(lab: Lab) {
    let (enough, end) = (Gate::new(), Gate::new());
    let (give_up, until) = (enough.clone(), end.clone());
    let half_way: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = half_way.clone();
    let top = spawn(async move {
        let middle = spawn(async move { deaf(&until).await.map(drop) });
        *tell.lock().unwrap() = Some(middle.job());
        drop(await_until(middle, &give_up).await);
        checkpoint().await
    });
    lab.settle().await;
    assert!(top.interrupt("stop"));
    lab.settle().await;
    let middle = half_way.lock().unwrap().take().expect("it was told");
    assert_eq!(middle.uninterrupt(), 0);
    enough.open();
    lab.settle().await;
    end.open();
    top.await
        .expect("whoever takes one back half-way answers for it");
}

/// request-2: a request that met another one half-way, and was heard along with
/// it, comes back to the job that passed it on.
/// Also: request-1.
pub async fn request_2_two_that_met_half_way_both_come_back(lab: Lab) {
    let end = Gate::new();
    let until = end.clone();
    let half_way: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = half_way.clone();
    let top = spawn(async move {
        let middle = spawn(async move {
            let leaf = spawn(async move {
                until.wait().await;
                parked().await
            });
            leaf.await
        });
        *tell.lock().unwrap() = Some(middle.job());
        words_of(&middle.await.unwrap_err()).to_owned()
    });
    lab.settle().await;
    assert!(top.interrupt("first"));
    lab.settle().await;
    let middle = half_way.lock().unwrap().take().expect("it was told");
    assert!(middle.interrupt("second"));
    lab.settle().await;
    end.open();
    assert_eq!(top.await.unwrap(), "first");
}

/// request-2: a target that caught it and awaits a job again when another
/// one asks: that request is not ours.
pub async fn request_2_caught_below_two_awaits_it_does_not_come_back(lab: Lab) {
    let half_way: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = half_way.clone();
    let top = spawn(async move {
        let middle = spawn(async move {
            let leaf = spawn(async {
                park().await.expect_err("passed on twice, and caught");
                parked().await
            });
            leaf.await
        });
        *tell.lock().unwrap() = Some(middle.job());
        let error = middle.await.unwrap_err();
        checkpoint().await?;
        Ok::<_, Error>(error.kind())
    });
    lab.settle().await;
    assert!(top.interrupt("ours"));
    lab.settle().await;
    let middle = half_way.lock().unwrap().take().expect("it was told");
    assert!(middle.interrupt("theirs"));
    assert_eq!(top.await.unwrap(), ErrorKind::Stopped);
}

/// request-2: a target that heard ours, and ends by another one that it has not
/// heard, caught ours.
pub async fn request_2_heard_before_the_one_that_ends_it(lab: Lab) {
    let end = Gate::new();
    let until = end.clone();
    let target: Arc<Mutex<Option<Job>>> = Arc::default();
    let tell = target.clone();
    let top = spawn(async move {
        let child = spawn(async move {
            park().await.expect_err("passed on, and caught");
            until.wait().await;
            7
        });
        *tell.lock().unwrap() = Some(child.job());
        let error = child.await.unwrap_err();
        checkpoint().await?;
        Ok::<_, Error>(error.kind())
    });
    lab.settle().await;
    assert!(top.interrupt("ours"));
    lab.settle().await;
    let child = target.lock().unwrap().take().expect("it was told");
    assert!(child.interrupt("theirs"));
    lab.settle().await;
    end.open();
    assert_eq!(top.await.unwrap(), ErrorKind::Stopped);
}

/// What the next owner of a handle does with it.
#[derive(Clone, Copy, Debug)]
enum Next {
    Await,
    Outcome,
    Drop,
}

/// request-2: a handle that is moved to another task after it has passed an
/// interrupt on: that is back with the job that was asked, and not with the other.
pub async fn request_2_a_handle_that_changes_hands(lab: Lab) {
    for next in [Next::Await, Next::Outcome, Next::Drop] {
        let (enough, end, log) = (Gate::new(), Gate::new(), Log::new());
        let (give_up, until, say) = (enough.clone(), end.clone(), log.clone());
        let asked = spawn(async move {
            let child = deaf(&until);
            let child = await_until(child, &give_up).await.expect("it waits");
            let other = spawn(async move {
                match next {
                    Next::Await => {
                        let error = child.await.expect_err("asked by somebody else");
                        assert_eq!(error.kind(), ErrorKind::Stopped);
                    }
                    Next::Outcome => {
                        let outcome = child.outcome().await?;
                        assert!(matches!(outcome, Outcome::Cancelled { late: Some(7), .. }));
                    }
                    Next::Drop => drop(child),
                }
                checkpoint().await
            });
            let told = sleep(HOUR).await.expect_err("it is back");
            say.say(words(&told));
            other.await?;
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        assert!(asked.interrupt("stop"));
        lab.settle().await;
        enough.open();
        lab.settle().await;
        assert_eq!(log.text(), "stop", "{next:?}");
        end.open();
        asked.await.expect("the other was never asked");
    }
}

/// request-2: a handle that changes hands after the task has ended: what was not
/// heard is back with the job that was asked; what ended the task was heard.
pub async fn request_2_a_handle_of_an_ended_task_changes_hands(lab: Lab) {
    for heard in [false, true] {
        let (enough, end) = (Gate::new(), Gate::new());
        let (give_up, until) = (enough.clone(), end.clone());
        let settle = lab.clone();
        let asked = spawn(async move {
            let child = if heard {
                let until = until.clone();
                spawn(async move {
                    let told = park().await.expect_err("passed on");
                    until.wait().await;
                    Err::<u32, Error>(told.into())
                })
            } else {
                deaf(&until)
            };
            let child = await_until(child, &give_up).await.expect("it waits");
            until.open();
            settle.settle().await;
            assert!(child.is_ended());
            let other = spawn(async move {
                let error = child.await.expect_err("asked by somebody else");
                checkpoint().await?;
                Ok::<_, Error>(error.kind())
            });
            let told = sleep(MS).await;
            assert_eq!(told.is_err(), !heard, "{told:?}");
            other.await
        });
        lab.settle().await;
        assert!(asked.interrupt("stop"));
        lab.settle().await;
        enough.open();
        assert_eq!(asked.await.unwrap(), ErrorKind::Stopped);
    }
}

/// request-2: an await that is given up by keeping the task and not its handle
/// gives it back too. Also: handle-1.
pub async fn request_2_a_handle_given_up_for_an_observer(lab: Lab) {
    let (enough, end) = (Gate::new(), Gate::new());
    let (give_up, until) = (enough.clone(), end.clone());
    let asked = spawn(async move {
        let child = await_until(deaf(&until), &give_up).await.expect("it waits");
        let child = child.into_job();
        let told = checkpoint().await.expect_err("it is back");
        assert!(!child.is_ended());
        until.open();
        let _ended = child.join().await?;
        Ok::<_, Error>(words(&told).to_owned())
    });
    lab.settle().await;
    assert!(asked.interrupt("stop"));
    lab.settle().await;
    enough.open();
    assert_eq!(asked.await.unwrap(), "stop");
}
