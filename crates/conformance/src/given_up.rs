//! Interrupts that a point has told and that do not come out of the call around
//! it: another branch has won, a deadline or a failure takes their place, the
//! call is dropped. They are put back. request-3.

use std::pin::Pin;
use std::time::Duration;

use kinfolk_core::{
    Backoff, Error, ErrorKind, OrCancel, Outcome, ReasonKind, Result, Task, TaskSet, all,
    all_settled, any, attempt, checkpoint, cleanup, for_each_concurrent, local_scope, park, race,
    restarting, retry, scope, select, shield, sleep, spawn, timeout,
};
use kinfolk_testkit::{Gate, Lab, Rng};

use crate::interrupted::{me, words, words_of};

const MS: Duration = Duration::from_millis(1);

/// A scope whose body hears the interrupt, and that then waits for a child.
async fn hears_and_waits(child: Duration) -> Result<u32> {
    scope(async |s| {
        s.launch(shield(sleep(child)));
        park().await?;
        Ok(0)
    })
    .await
}

async fn after(wait: Duration, value: u32) -> Result<u32> {
    sleep(wait).await?;
    Ok(value)
}

/// Runs `body` in a task that is interrupted after 5 ms. It must end with a
/// value, and then the next point tells what was put back, once.
async fn is_put_back<B>(body: B)
where
    B: Future<Output = Result<u32>> + Send + 'static,
{
    let task = spawn(async move {
        let value = body.await?;
        let told = checkpoint().await.expect_err("it was put back");
        assert_eq!(words(&told), "stop");
        checkpoint().await.expect("told once");
        Ok::<_, Error>(value)
    });
    let job = task.job();
    sleep(5 * MS).await.unwrap();
    assert!(job.interrupt("stop"));
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(job.interrupts(), 1, "it was counted once");
}

/// request-3: heard in a branch that still waits for its children while another
/// branch wins.
/// Also: handle-7.
pub async fn request_3_another_branch_wins_after_it_was_heard(_lab: Lab) {
    is_put_back(any((hears_and_waits(20 * MS), shield(after(10 * MS, 7))))).await;
    is_put_back(race((hears_and_waits(20 * MS), shield(after(10 * MS, 7))))).await;
    is_put_back(async {
        let chosen = select!(hears_and_waits(20 * MS), shield(sleep(10 * MS)));
        chosen.await.map(|_| 7)
    })
    .await;
    let of_many = [true, false].map(|hears| async move {
        match hears {
            true => hears_and_waits(20 * MS).await,
            false => shield(after(10 * MS, 7)).await,
        }
    });
    is_put_back(any(of_many)).await;
    // The body itself still cleans up, and returns it.
    let cleans = || async {
        let told = park().await.expect_err("told");
        cleanup(sleep(10 * MS)).await?;
        Err::<u32, Error>(told.into())
    };
    is_put_back(any((cleans(), shield(after(10 * MS, 7))))).await;
    is_put_back(race((cleans(), shield(after(10 * MS, 7))))).await;
}

/// request-3: heard in an inner scope that still waits for its children while a
/// deadline passes around it: the timeout is left with it.
/// Also: time-3.
pub async fn request_3_a_deadline_passes_after_it_was_heard(_lab: Lab) {
    let task = spawn(async {
        let hurried = timeout(10 * MS, async { hears_and_waits(20 * MS).await });
        let error = hurried.await.expect_err("told");
        assert_eq!(words_of(&error), "stop");
        checkpoint().await.expect("told once");
        // What was put back inside and not heard there is told after it.
        let job = me();
        kinfolk_core::launch(async move {
            sleep(5 * MS).await?;
            assert!(job.interrupt("again"));
            Ok::<_, Error>(())
        });
        let kept = timeout(10 * MS, async {
            let inner = hears_and_waits(20 * MS).await.expect_err("the deadline");
            assert_eq!(inner.kind(), ErrorKind::Cancelled);
            Ok::<_, Error>(7)
        });
        assert_eq!(kept.await?, 7);
        assert_eq!(words(&checkpoint().await.expect_err("put back")), "again");
        checkpoint().await.expect("told once");
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("stop"));
    task.await.unwrap();
}

/// request-3: the same where it was passed on to a task, and heard there in an
/// inner scope: it comes back to the await.
/// Also: request-2.
pub async fn request_3_a_deadline_passes_around_the_task_that_has_heard(_lab: Lab) {
    let task = spawn(async {
        let hurried = timeout(10 * MS, async {
            let below = spawn(async { hears_and_waits(20 * MS).await });
            below.await
        });
        let error = hurried.await.expect_err("told");
        assert_eq!(words_of(&error), "stop");
        checkpoint().await.expect("told once");
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("stop"));
    task.await.unwrap();
    // The body of that task cleans up, and returns what it was told.
    let task = spawn(async {
        let hurried = timeout(10 * MS, async {
            let below = spawn(async {
                let told = park().await.expect_err("told");
                cleanup(sleep(20 * MS)).await?;
                Err::<u32, Error>(told.into())
            });
            below.await
        });
        assert_eq!(words_of(&hurried.await.expect_err("told")), "stop");
        checkpoint().await.expect("told once");
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("stop"));
    task.await.unwrap();
}

/// request-3: a task from outside that has heard, and whose await is left at
/// once: the job that awaited it has it again, though that task has not ended.
/// Also: request-2, handle-2.
pub async fn request_3_an_await_is_left_while_its_task_still_waits(_lab: Lab) {
    for let_out in [true, false] {
        let task = spawn(async move {
            let outside: Task<u32> = spawn(async move {
                match let_out {
                    // Its body is over, and it waits for a child.
                    true => {
                        kinfolk_core::launch(shield(sleep(20 * MS)));
                        park().await?;
                        Ok(0)
                    }
                    false => hears_and_waits(20 * MS).await,
                }
            });
            let hurried = timeout(10 * MS, outside);
            let error = hurried.await.expect_err("told");
            assert_eq!(words_of(&error), "stop");
            checkpoint().await.expect("told once");
            Ok::<_, Error>(())
        });
        sleep(5 * MS).await.unwrap();
        assert!(task.interrupt("stop"));
        task.await.unwrap();
    }
}

/// request-3: the call in which it was heard is dropped before it returns.
/// Also: handle-5.
pub async fn request_3_a_call_is_dropped_after_it_was_heard(_lab: Lab) {
    /// Polls `call` for 10 ms, and drops it.
    async fn drop_after<C: Future>(call: C) -> Result<u32> {
        let (call, wait) = (Box::pin(call), Box::pin(shield(sleep(10 * MS))));
        match futures_util::future::select(call, wait).await {
            futures_util::future::Either::Left(_) => panic!("it still waits for a child"),
            futures_util::future::Either::Right((waited, _)) => waited.map(|()| 7),
        }
    }
    is_put_back(drop_after(hears_and_waits(20 * MS))).await;
    let slow = || async {
        let _ = park().await;
        cleanup(after(20 * MS, 1)).await
    };
    let hears = || async {
        park().await?;
        Ok::<u32, Error>(0)
    };
    is_put_back(drop_after(async move { race((hears(), slow())).await })).await;
    is_put_back(drop_after(async move { any((hears(), slow())).await })).await;
    is_put_back(drop_after(async move { all((hears(), slow())).await })).await;
    is_put_back(drop_after(async move {
        all_settled((hears(), after(20 * MS, 1))).await
    }))
    .await;
    is_put_back(drop_after(for_each_concurrent(
        0..2,
        2,
        move |n| async move {
            match n {
                0 => hears().await.map(drop),
                _ => slow().await.map(drop),
            }
        },
    )))
    .await;
}

/// request-3: `or_cancel` drops what has heard an earlier one.
pub async fn request_3_or_cancel_drops_what_has_heard(_lab: Lab) {
    let task = spawn(async {
        let mut waits = Box::pin(hears_and_waits(20 * MS));
        // Polled by itself until it has heard.
        let early = futures_util::future::select(&mut waits, Box::pin(shield(sleep(7 * MS)))).await;
        assert!(matches!(early, futures_util::future::Either::Right(_)));
        let second = waits.or_cancel().await.expect_err("told there");
        assert_eq!(words(&second), "second");
        let first = checkpoint().await.expect_err("put back");
        assert_eq!(words(&first), "second", "the words of the latest");
        checkpoint().await.expect("told once");
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("first"));
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("second"));
    task.await.unwrap();
}

/// request-3: a failure dominates it, and it is told afterwards.
/// Also: outcome-5.
pub async fn request_3_a_failure_takes_its_place_and_it_is_told_after(_lab: Lab) {
    let fails = || async {
        let _ = park().await;
        let _ = cleanup(sleep(MS)).await;
        Err::<u32, _>(Error::msg("in its clean-up"))
    };
    let hears = || async {
        park().await?;
        Ok::<u32, Error>(0)
    };
    let caught = |call: Result<u32>| {
        let error = call.expect_err("failed");
        assert_eq!(error.to_string(), "in its clean-up");
        Ok(7)
    };
    // A child of the scope that has heard.
    is_put_back(async move {
        let failed = scope(async |s| {
            s.launch(fails());
            park().await?;
            Ok(0)
        });
        caught(failed.await)
    })
    .await;
    // A branch beside the one that has heard.
    is_put_back(async move { caught(race((hears(), fails())).await) }).await;
    is_put_back(async move { caught(all((hears(), fails())).await.map(|_| 0)) }).await;
    // `any` passes the failure over.
    is_put_back(async move {
        let inner = async {
            scope(async |s| {
                s.launch(fails());
                park().await?;
                Ok(0)
            })
            .await
        };
        any((inner, shield(after(20 * MS, 7)))).await
    })
    .await;
}

/// request-3: an explicit cancel of a job around it takes its place.
pub async fn request_3_an_explicit_cancel_takes_its_place(_lab: Lab) {
    let task = spawn(async {
        let stopped = scope(async |outer| {
            let cancels = outer.clone();
            kinfolk_core::launch(async move {
                shield(sleep(10 * MS)).await?;
                cancels.cancel("enough");
                Ok::<_, Error>(())
            });
            hears_and_waits(20 * MS).await
        });
        let error = stopped.await.expect_err("stopped");
        assert_eq!(error.kind(), ErrorKind::Stopped);
        checkpoint().await.expect("the cancel has taken its place");
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("stop"));
    task.await.unwrap();
}

/// request-3: put back into a task that has no further point it is undelivered:
/// the task ends Cancelled, and its value is late.
/// Also: request-2, outcome-6.
pub async fn request_3_put_back_and_no_point_after_it(_lab: Lab) {
    let task = spawn(any((hears_and_waits(20 * MS), shield(after(10 * MS, 7)))));
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("stop"));
    match task.outcome().await.unwrap() {
        Outcome::Cancelled { reason, late } => {
            assert_eq!(reason.text(), Some("stop"));
            assert_eq!(late, Some(7));
        }
        other => panic!("{other:?}"),
    }
}

/// request-3: taken back before it would be put back, it stays away.
/// Also: request-1.
pub async fn request_3_taken_back_it_is_not_put_back(_lab: Lab) {
    let task = spawn(async {
        let won = any((hears_and_waits(20 * MS), shield(after(10 * MS, 7)))).await?;
        checkpoint().await.expect("it was taken back");
        Ok::<_, Error>(won)
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.interrupt("stop"));
    sleep(MS).await.unwrap();
    assert_eq!(task.uninterrupt(), 0);
    assert_eq!(task.await.unwrap(), 7);
}

/// request-3: an interrupt that comes while losers clean up is for the next
/// point, with those that were put back before.
/// Also: request-1.
pub async fn request_3_one_more_comes_while_losers_clean_up(_lab: Lab) {
    let task = spawn(async {
        let won = any((hears_and_waits(20 * MS), shield(after(10 * MS, 7)))).await?;
        let told = checkpoint().await.expect_err("both");
        assert_eq!(words(&told), "second");
        checkpoint().await.expect("they have merged");
        Ok::<_, Error>(won)
    });
    let job = task.job();
    sleep(5 * MS).await.unwrap();
    assert!(job.interrupt("first"));
    sleep(10 * MS).await.unwrap();
    assert!(job.interrupt("second"));
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(job.interrupts(), 2);
}

// ------------------------------------------------------------ random programs

/// A program in which every author writes `?`.
#[derive(Clone, Debug)]
enum Program {
    Sleep(u32),
    /// A wait that hears nothing.
    Deaf(u32),
    Then(Vec<Program>),
    Any(Vec<Program>),
    Race(Vec<Program>),
    All(Vec<Program>),
    Settled(Vec<Program>),
    Each(Vec<Program>),
    Select(Box<[Program; 2]>),
    /// With handlers: the value of the first arm matches or does not, and what the
    /// second arm decides is handled by the third program.
    Handlers(bool, Box<[Program; 3]>),
    /// The results of a set as they come, an author that looks at each.
    Set(Vec<Program>),
    Map(Vec<Program>),
    /// Its author goes on where it has timed out.
    Timeout(u32, Box<Program>),
    /// The same by `or_none`.
    OrNone(u32, Box<Program>),
    /// A child that is not awaited, and the body.
    Scope(Box<[Program; 2]>),
    /// The same with a child that borrows; it is awaited, or not.
    Local(bool, Box<[Program; 2]>),
    /// A child that is awaited.
    Await(Box<Program>),
    /// The same with a handle that two have.
    Shared(Box<Program>),
    /// Fails so often at first, and is called anew.
    Retry(u32, Box<Program>),
    /// The same in a child, which is awaited.
    Restarting(u32, Box<Program>),
    OrCancel(Box<Program>),
    Cleanup(Box<Program>, u32),
}

fn program(rng: &mut Rng, depth: usize) -> Program {
    let ms = rng.below(12) as u32;
    if depth == 0 {
        return match rng.chance(0.6) {
            true => Program::Sleep(ms),
            false => Program::Deaf(ms),
        };
    }
    let one = |rng: &mut Rng| Box::new(program(rng, depth - 1));
    let some = |rng: &mut Rng| (0..2 + rng.below(2)).map(|_| *one(rng)).collect();
    match rng.below(25) {
        0 => Program::Sleep(ms),
        1 => Program::Then(some(rng)),
        2 | 3 => Program::Any(some(rng)),
        4 | 5 => Program::Race(some(rng)),
        6 => Program::All(some(rng)),
        7 => Program::Settled(some(rng)),
        8 => Program::Each(some(rng)),
        9 => Program::Select(Box::new([*one(rng), *one(rng)])),
        10 | 11 => Program::Timeout(ms, one(rng)),
        12 => Program::Scope(Box::new([*one(rng), *one(rng)])),
        13 => match rng.chance(0.7) {
            true => Program::Await(one(rng)),
            false => Program::OrCancel(one(rng)),
        },
        14 => Program::Cleanup(one(rng), ms),
        15 | 16 => {
            let arms = Box::new([*one(rng), *one(rng), *one(rng)]);
            Program::Handlers(rng.chance(0.5), arms)
        }
        17 => Program::Set(some(rng)),
        18 => Program::Map(some(rng)),
        19 => Program::OrNone(ms, one(rng)),
        20 | 21 => Program::Local(rng.chance(0.5), Box::new([*one(rng), *one(rng)])),
        22 => Program::Shared(one(rng)),
        23 => Program::Retry(rng.below(3) as u32, one(rng)),
        _ => Program::Restarting(rng.below(3) as u32, one(rng)),
    }
}

fn is_interrupt(error: &Error) -> bool {
    let reason = error.reason().filter(|_| error.is_cancelled());
    reason.is_some_and(|reason| reason.kind() == ReasonKind::Interrupted)
}

/// Pauses of 1 ms and 2 ms.
const HURRIED: Backoff = Backoff::new().tries(3).first(MS);

/// What calls `program`, and fails after it so often.
fn failing(times: u32, program: Program) -> impl FnMut() -> Ran + Send {
    let mut calls = 0;
    move || {
        calls += 1;
        let (fails, program) = (calls <= times, program.clone());
        Box::pin(async move {
            run(program).await?;
            match fails {
                true => Err(Error::msg("not yet")),
                false => Ok(()),
            }
        })
    }
}

type Ran = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

// Long because it has an arm for each sort of program.
fn run(program: Program) -> Ran {
    let all_of = |list: Vec<Program>| list.into_iter().map(run).collect::<Vec<_>>();
    Box::pin(async move {
        match program {
            Program::Sleep(ms) => sleep(ms * MS).await?,
            Program::Deaf(ms) => shield(sleep(ms * MS)).await?,
            Program::Then(list) => {
                for one in list {
                    run(one).await?;
                }
            }
            Program::Any(list) => any(all_of(list)).await?,
            Program::Race(list) => race(all_of(list)).await?,
            Program::All(list) => all(all_of(list)).await.map(drop)?,
            Program::Settled(list) => {
                let mut ends = all_settled(all_of(list)).await;
                // An author that looks at all of them.
                ends.sort_by_key(|end| !end.as_ref().is_err_and(is_interrupt));
                for end in ends {
                    end?;
                }
            }
            Program::Each(list) => for_each_concurrent(list, 2, run).await?,
            Program::Select(both) => {
                let [a, b] = *both;
                select!(run(a), run(b)).await.map(drop)?;
            }
            Program::Handlers(matches, arms) => {
                let [a, b, handler] = *arms;
                let first = async {
                    run(a).await?;
                    Ok::<_, Error>(matches)
                };
                select! {
                    true = first => {}
                    () = run(b) => run(handler).await?,
                }?;
            }
            Program::Set(list) => {
                let mut set = TaskSet::new().limit(2)?;
                set.extend(list.into_iter().map(run)).await?;
                while let Some(end) = set.next().await? {
                    end?;
                }
            }
            Program::Map(list) => TaskSet::map(list, 2, run).await.map(drop)?,
            Program::OrNone(ms, inner) => drop(timeout(ms * MS, run(*inner)).or_none().await?),
            Program::Timeout(ms, inner) => match timeout(ms * MS, run(*inner)).await {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                ended => ended?,
            },
            Program::Scope(both) => {
                let [child, body] = *both;
                scope(async |s| {
                    s.launch(run(child));
                    run(body).await
                })
                .await?;
            }
            Program::Local(awaits, both) => {
                let [child, body] = *both;
                local_scope(async |s| {
                    let child = s.spawn(run(child));
                    match awaits {
                        true => child.await?,
                        false => drop(child.into_job()),
                    }
                    run(body).await
                })
                .await?;
            }
            Program::Await(inner) => spawn(run(*inner)).await?,
            Program::Shared(inner) => {
                let shared = spawn(run(*inner)).shared();
                let other = spawn(shared.clone());
                shared.await?;
                other.await?;
            }
            Program::Retry(times, inner) => retry(HURRIED, failing(times, *inner)).await?,
            Program::Restarting(times, inner) => {
                spawn(restarting(HURRIED, failing(times, *inner))).await?;
            }
            Program::OrCancel(inner) => run(*inner).or_cancel().await??,
            Program::Cleanup(inner, ms) => {
                let ended = run(*inner).await;
                cleanup(sleep(ms * MS)).await?;
                ended?;
            }
        }
        Ok(())
    })
}

/// request-3: whatever is built of branches, timeouts and scopes whose authors
/// write `?`, a task that was interrupted does not complete.
/// Also: request-1, request-2, handle-7.
pub async fn request_3_random_programs_lose_no_interrupt(lab: Lab) {
    let mut rng = Rng::new(lab.seed());
    for round in 0..40 {
        let depth = 1 + rng.below(4);
        let program = program(&mut rng, depth);
        let at = rng.below(16) as u32;
        let shown = program.clone();
        // A try that fails once it is told is the answer: no matter of the family's.
        let task = attempt(run(program));
        let job = task.job();
        sleep(at * MS + MS / 2).await.unwrap();
        let asked = job.interrupt("stop");
        let outcome = task.outcome().await.unwrap();
        assert_eq!(job.interrupts(), usize::from(asked));
        assert!(
            !(asked && matches!(outcome, Outcome::Completed(()))),
            "seed {}, round {round}: interrupted at {at}.5 ms, and completed: {shown:#?}",
            lab.seed()
        );
    }
    lab.take_failures();
}

/// request-3: a branch that hears and another that wins at the same moment.
/// Also: handle-7.
pub async fn request_3_a_win_and_an_interrupt_at_once(_lab: Lab) {
    for _ in 0..20 {
        let gate = Gate::new();
        let open = gate.clone();
        let task = spawn(async move {
            let opens = async {
                gate.wait().await;
                Ok::<u32, Error>(7)
            };
            any((hears_and_waits(MS), opens)).await
        });
        let job = task.job();
        let opener = spawn(async move { open.open() });
        let asked = job.interrupt("stop");
        opener.await.unwrap();
        let outcome = task.outcome().await.unwrap();
        assert!(
            !asked || matches!(outcome, Outcome::Cancelled { .. }),
            "{outcome:?}"
        );
    }
}
