//! `cancel_everywhere`: it goes through every point, finds what it should
//! find, and says where.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use kinfolk_core::{
    Error, OrCancel, Reason, Scope, blocking, checkpoint, cleanup, current_job, detach,
    ignore_cancellation, launch, park, scope, shield, sleep, spawn, yield_now,
};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::pipe;
use kinfolk_testkit::io::SimKernel;
use kinfolk_testkit::{CancelEverywhere, Gate, cancel_everywhere, cancel_everywhere_then};

const SECOND: Duration = Duration::from_secs(1);

/// What it says when it panics.
fn complaint(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it finds nothing");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().expect("a text").to_string(),
    }
}

#[test]
fn test_3_every_point_is_tried_in_each_way() {
    // Which points were passed, and why it was stopped after them.
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let told = seen.clone();
    let went = cancel_everywhere(move || {
        let told = told.clone();
        async move {
            for passed in 0..5 {
                if let Err(stopped) = checkpoint().await {
                    let why = stopped.reason().root_cause().kind();
                    told.lock().unwrap().insert((passed, format!("{why:?}")));
                    return Err(stopped);
                }
            }
            Ok(())
        }
    });
    assert_eq!((went.points, went.forced), (5, 0));
    let ways = [
        "Asked",
        "Deadline",
        "ChildFailed",
        "Interrupted",
        "HandleDropped",
        "Shutdown",
    ];
    assert!(
        went.runs >= (3 + 6) * 6,
        "a cancel on each seed and each other way on one; points and none: {went:?}"
    );
    let seen = seen.lock().unwrap();
    let expected: BTreeSet<_> = (0..5)
        .flat_map(|passed| ways.map(|why| (passed, why.to_string())))
        .collect();
    assert_eq!(*seen, expected);
}

#[test]
fn test_3_points_of_children_and_of_cleanup_are_tried_too() {
    let reasons = Arc::new(Mutex::new(Vec::<Reason>::new()));
    let seen = reasons.clone();
    let went = cancel_everywhere(move || {
        let seen = seen.clone();
        scope(async move |s| {
            let child = s.spawn(async move {
                let slept = sleep(SECOND).await;
                if let Err(told) = &slept {
                    seen.lock().unwrap().push(told.reason().clone());
                    cleanup(async {
                        yield_now().await?;
                        sleep(SECOND).await
                    })
                    .await?;
                }
                slept?;
                Ok::<_, Error>(())
            });
            shield(async {
                yield_now().await?;
                Ok::<_, Error>(())
            })
            .await?;
            s.launch(sleep(2 * SECOND));
            child.await?;
            sleep(SECOND).await?;
            Ok(())
        })
    });
    assert!(went.points >= 7, "{went:?}");
    let kinds: BTreeSet<_> = reasons
        .lock()
        .unwrap()
        .iter()
        .map(|reason| format!("{:?}", reason.root_cause().kind()))
        .collect();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
}

#[test]
fn test_3_what_is_lost_on_the_way_is_found() {
    // Takes an item out and puts it elsewhere, with a point in between.
    let rooms = Arc::new(Mutex::new((1, 0)));
    let seen = rooms.clone();
    let found = complaint(move || {
        let scenario = move || {
            let rooms = rooms.clone();
            async move {
                *rooms.lock().unwrap() = (1, 0);
                sleep(SECOND).await?;
                rooms.lock().unwrap().0 -= 1;
                sleep(SECOND).await?;
                rooms.lock().unwrap().1 += 1;
                sleep(SECOND).await
            }
        };
        cancel_everywhere_then(scenario, move || {
            let (here, there) = *seen.lock().unwrap();
            assert_eq!(here + there, 1, "an item is lost");
        });
    });
    // Each sleep is polled twice: the third poll begins the second one.
    assert!(
        found.contains("a cancel at point 3") && found.contains("an item is lost"),
        "{found}"
    );
    assert!(found.contains("KINFOLK_SEED=0"), "{found}");
}

#[test]
fn test_3_what_stays_behind_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            let stopped = checkpoint().await;
            if stopped.is_err() {
                detach(async { park().await });
            }
            stopped
        });
    });
    assert!(
        found.contains("at point 1") && found.contains("1 jobs and 0 timers left"),
        "{found}"
    );
}

#[test]
fn test_3_a_hang_after_a_cancel_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            let closed = Gate::new();
            let stopped = sleep(SECOND).await;
            if stopped.is_err() {
                shield(async move {
                    closed.wait().await;
                    Ok::<_, Error>(())
                })
                .await?;
            }
            Ok::<_, Error>(())
        });
    });
    assert!(
        found.contains("deadlock") && found.contains("scenario"),
        "{found}"
    );
}

#[test]
fn test_3_one_that_does_not_stop_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            // Swallows it, and goes on for ever.
            let mut rounds = 0;
            while rounds < 3 {
                rounds += i32::from(checkpoint().await.is_ok());
            }
        });
    });
    assert!(
        found.contains("told to stop and is still running") && found.contains("swallows"),
        "{found}"
    );
}

#[test]
fn test_3_a_panic_after_a_cancel_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            yield_now().await.expect("nobody cancels me");
        });
    });
    assert!(
        found.contains("at point 1") && found.contains("nobody cancels me"),
        "{found}"
    );
}

#[test]
fn test_3_a_scenario_that_fails_by_itself_is_no_scenario() {
    let found = complaint(|| {
        cancel_everywhere(|| async { Err::<(), _>(Error::msg("out of luck")) });
    });
    assert!(
        found.contains("nothing to stop it") && found.contains("out of luck"),
        "{found}"
    );
}

#[test]
fn test_3_a_foreign_await_is_dropped_and_counted() {
    let went = cancel_everywhere(|| {
        let open = Gate::new();
        async move {
            let opener = open.clone();
            spawn(async move {
                sleep(SECOND).await?;
                opener.open();
                Ok::<_, Error>(())
            })
            .into_job();
            open.wait().await;
            Ok::<_, Error>(())
        }
    });
    assert!(went.forced > 0, "{went:?}");
}

#[test]
fn test_3_more_points_than_can_be_tried() {
    let went = CancelEverywhere::new().most(20).seeds(2).run(|| async {
        for _ in 0..5000 {
            checkpoint().await?;
        }
        Ok::<_, Error>(())
    });
    // Every 128th yields and is asked once more.
    assert!((5000..5050).contains(&went.points), "{went:?}");
    // A cancel on two seeds and six other ways on one; none, and twenty points and
    // twenty turns at most; and a second stop where the first takes more than a turn,
    // which it does not here.
    assert!(went.runs <= 8 * 41, "{went:?}");
    assert!(went.runs > 8 * 21, "{went:?}");
}

#[test]
fn test_3_many_jobs_at_once() {
    let went = cancel_everywhere(|| {
        scope(async |s| {
            for n in 0..8 {
                s.launch(async move {
                    let job = current_job().expect("inside");
                    assert!(!job.is_ended());
                    sleep(n * SECOND).await?;
                    launch(async { yield_now().await });
                    Ok::<_, Error>(())
                });
            }
            Ok(())
        })
    });
    assert!(went.points >= 24, "{went:?}");
}

/// With i/o every point is tried twice: with fair i/o and with rough.
#[test]
fn test_3_io_is_tried_in_rough_weather_too() {
    let went = cancel_everywhere(async || {
        let (reader, writer) = pipe()?;
        writer.write_all("four").await.0?;
        drop(writer);
        let mut seen = 0;
        while seen < 4 {
            seen += reader.read([0; 4]).await.0?;
        }
        Ok::<_, Error>(())
    });
    let fair = cancel_everywhere(async || checkpoint().await);
    // Left alone, at each point, between any two turns: once.
    let once = 9 * (1 + fair.points + fair.turns + 1);
    assert!(fair.runs <= once, "{fair:?}");
    assert!(went.runs > 2 * 9 * (1 + went.points), "{went:?}");
    // One that takes a part for all.
    let found = complaint(|| {
        cancel_everywhere(async || {
            let (reader, writer) = pipe()?;
            for _ in 0..4 {
                writer.write_all("four").await.0?;
                let (read, _) = reader.read([0; 4]).await;
                assert_eq!(read?, 4);
            }
            Ok::<_, Error>(())
        });
    });
    assert!(
        found.contains(", with rough i/o") && found.contains(":rough): "),
        "{found}"
    );
}

#[test]
fn test_3_a_failure_that_no_handle_takes_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            let stopped = checkpoint().await;
            if stopped.is_err() {
                let nursery = Scope::build().supervisor().run(async |s| {
                    s.launch(async { assert_eq!(1 + 1, 3, "in clean-up") });
                    Ok(())
                });
                let _ = cleanup(nursery).await;
            }
            stopped
        });
    });
    assert!(
        found.contains("at point 1")
            && found.contains("everywhere.rs")
            && found.contains("in clean-up"),
        "{found}"
    );
    let went = CancelEverywhere::new().allow_failures().run(|| async {
        let nursery = Scope::build().supervisor().run(async |s| {
            s.launch(async { Err::<(), _>(Error::msg("no such host")) });
            yield_now().await?;
            Ok(())
        });
        nursery.await
    });
    assert!(went.runs > 9, "{went:?}");
}

/// A wait of one task is stopped while it is under way, and not only when it begins
/// and when it is over.
#[test]
fn test_3_an_operation_under_way_is_stopped() {
    /// Begins at its first poll, and loses a byte if it is told before it is over.
    struct Receive {
        point: kinfolk_core::kit::Point,
        came: kinfolk_testkit::GateWait,
        begun: bool,
        lost: Arc<Mutex<u32>>,
    }
    impl Future for Receive {
        type Output = Result<(), Error>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            if !self.begun {
                std::task::ready!(self.point.poll_enter(cx))?;
                self.begun = true;
            }
            if Pin::new(&mut self.came).poll(cx).is_ready() {
                self.point.done();
                return Poll::Ready(Ok(()));
            }
            if kinfolk_core::is_cancelled() {
                *self.lost.lock().unwrap() = 1;
                return self
                    .point
                    .poll_enter(cx)
                    .map(|told| told.map_err(Error::from));
            }
            self.point.pending(cx);
            Poll::Pending
        }
    }
    let lost = Arc::new(Mutex::new(0));
    let bytes = lost.clone();
    let found = complaint(move || {
        let scenario = move || {
            let lost = lost.clone();
            async move {
                *lost.lock().unwrap() = 0;
                let gate = Gate::new();
                let (opener, came) = (gate.clone(), gate.wait());
                // The other side: it answers after a turn, and passes no point.
                let mut turns = 0;
                launch(std::future::poll_fn(move |cx| {
                    turns += 1;
                    if turns == 1 {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    opener.open();
                    Poll::Ready(())
                }));
                let point = kinfolk_core::kit::Point::new();
                let begun = false;
                Receive {
                    point,
                    came,
                    begun,
                    lost,
                }
                .await
            }
        };
        cancel_everywhere_then(scenario, move || {
            let lost = *bytes.lock().unwrap();
            assert_eq!(lost, 0, "a byte is lost");
        });
    });
    assert!(
        found.contains("with a cancel before turn ")
            && found.contains("scenario waits in ")
            && found.contains("tests/everywhere.rs:")
            && found.contains("KINFOLK_SEED=0 KINFOLK_POINT=cancel@turn:"),
        "{found}"
    );
}

/// Panics never pass, also where failures do, and where the task was dropped.
#[test]
fn test_3_a_panic_is_found_though_failures_are_allowed() {
    fn bug() {
        panic!("in a child that no handle has");
    }
    let found = complaint(|| {
        CancelEverywhere::new().allow_failures().run(|| async {
            let supervisor = Scope::build().supervisor();
            let run = supervisor.run(async |s| {
                s.launch(async { bug() });
                sleep(SECOND).await?;
                Ok(())
            });
            run.await
        });
    });
    assert!(found.contains("in a child that no handle has"), "{found}");
}

/// A panic that the tree contains harms no job. It is a bug of the scenario.
#[test]
fn test_3_a_contained_panic_is_found() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let found = complaint(|| {
        cancel_everywhere(|| async {
            // The value of a task that no handle takes.
            let task = spawn(async { Ok::<_, Error>(Box::new(Bomb) as Box<dyn Send>) });
            let _ended = task.join().await?;
            drop(task);
            Ok::<_, Error>(())
        });
    });
    assert!(found.contains("panicked:\n  in a destructor"), "{found}");
}

/// The selection of a few points begins elsewhere for each schedule and way to stop.
#[test]
fn test_3_few_points_are_not_always_the_same() {
    let stopped = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = stopped.clone();
    CancelEverywhere::new().most(10).run(move || {
        let seen = seen.clone();
        async move {
            for passed in 0..20 {
                if let Err(told) = checkpoint().await {
                    seen.lock().unwrap().insert(passed);
                    return Err(told);
                }
            }
            Ok(())
        }
    });
    let stopped = stopped.lock().unwrap();
    let even = stopped.iter().filter(|passed| **passed % 2 == 0).count();
    assert!(even > 5 && stopped.len() - even > 5, "{stopped:?}");
}

/// A scenario that a dropped future leaves in a bad state: the message says so.
#[test]
fn test_3_state_that_a_drop_left_behind_is_named() {
    let busy = Arc::new(Mutex::new(false));
    let found = complaint(move || {
        cancel_everywhere(move || {
            let busy = busy.clone();
            async move {
                assert!(!std::mem::replace(&mut *busy.lock().unwrap(), true), "busy");
                let slept = sleep(SECOND).await;
                *busy.lock().unwrap() = false;
                slept
            }
        });
    });
    assert!(found.contains("busy"), "{found}");
    assert!(found.contains("an earlier run has dropped"), "{found}");
}

/// A run that fails in another way the second time does not replay, and that is said.
#[test]
fn test_3_another_failure_is_no_replay() {
    let runs = Arc::new(Mutex::new(0));
    let found = complaint(move || {
        cancel_everywhere(move || {
            let runs = runs.clone();
            async move {
                if let Err(told) = sleep(SECOND).await {
                    *runs.lock().unwrap() += 1;
                    panic!("lost {} messages: {told}", *runs.lock().unwrap());
                }
                Ok::<_, Error>(())
            }
        });
    });
    assert!(found.contains("failed in another way"), "{found}");
}

/// The file and line of the point are named; in release builds the job that polls it.
#[test]
fn test_3_the_place_of_the_point_is_named() {
    let mut line = 0;
    let found = complaint(|| {
        line = line!() + 2;
        cancel_everywhere(|| async {
            let inner = Scope::named("inner").run(async |_| {
                checkpoint().await.map_err(|_| Error::msg("swallowed"))?;
                Ok(())
            });
            inner.await
        });
    });
    let place = match cfg!(debug_assertions) {
        true => format!("at point 1, at tests/everywhere.rs:{} ", line + 1),
        false => format!("at point 1, in \"inner\" of tests/everywhere.rs:{line} "),
    };
    assert!(found.contains(&place), "{place}: {found}");
}

/// Whatever the point is, its place is that of the call in the user's code.
#[test]
fn test_3_the_place_of_every_kind_of_point_is_named() {
    async fn told<T, E>(point: impl Future<Output = Result<T, E>>) -> Result<(), Error> {
        match point.await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::msg("swallowed")),
        }
    }
    type Scenario = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
    fn is_named(line: u32, scenario: fn() -> Scenario) {
        let found = complaint(|| {
            cancel_everywhere(scenario);
        });
        let place = format!("at point 1, at tests/everywhere.rs:{line} ");
        assert!(
            !cfg!(debug_assertions) || found.contains(&place),
            "{place}: {found}"
        );
    }
    is_named(line!(), || Box::pin(told(yield_now())));
    is_named(line!(), || Box::pin(told(sleep(SECOND))));
    is_named(line!(), || Box::pin(told(async {}.or_cancel())));
    is_named(line!(), || Box::pin(told(ignore_cancellation())));
    is_named(line!(), || Box::pin(told(blocking(|_| ()))));
}

/// A scenario that was stopped and panics is found, also if its panic stands beside
/// the failure that was injected.
#[test]
fn test_3_a_panic_beside_the_injected_failure_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            let told = sleep(SECOND).await;
            if let Err(told) = &told
                && told.reason().root_cause().kind() == kinfolk_core::ReasonKind::ChildFailed
            {
                panic!("an assertion in clean-up");
            }
            told
        });
    });
    assert!(
        found.contains("with a failure beside it") && found.contains("an assertion in clean-up"),
        "{found}"
    );
}

/// An error that does not say that it comes of the cancel is a failure.
#[test]
fn test_3_a_failure_of_its_own_once_stopped_is_found() {
    #[derive(Debug)]
    struct Lost;
    impl std::fmt::Display for Lost {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the connection is lost")
        }
    }
    impl std::error::Error for Lost {}
    let scenario = || async { sleep(SECOND).await.map_err(|_| Lost) };
    let found = complaint(move || {
        cancel_everywhere(scenario);
    });
    assert!(
        found.contains("the scenario was stopped and failed: the connection is lost"),
        "{found}"
    );
    CancelEverywhere::new().allow_failures().run(scenario);
}

/// Cancelled, and not only interrupted: clean-up has a limit.
fn was_cancelled(told: &Result<(), kinfolk_core::Cancelled>) -> bool {
    let interrupted = kinfolk_core::ReasonKind::Interrupted;
    (told.as_ref()).is_err_and(|told| told.reason().kind() != interrupted)
}

/// Clean-up that would never end is found: in a clean-up section whose time is up,
/// and in a foreign await of a body that was told.
#[test]
fn test_3_clean_up_that_does_not_end_is_found() {
    let section = || async {
        let told = checkpoint().await;
        if was_cancelled(&told) {
            let _ = cleanup(async {
                loop {
                    sleep(SECOND).await?;
                }
                #[expect(unreachable_code, reason = "for its type")]
                Ok::<(), Error>(())
            })
            .await;
        }
        told
    };
    let found = complaint(move || {
        cancel_everywhere(section);
    });
    assert!(
        found.contains("clean-up did not finish")
            && found.contains("the clean-up or shield at tests/everywhere.rs:")
            && found.contains("ran out of time"),
        "{found}"
    );
    CancelEverywhere::new().allow_cut_cleanup().run(section);

    let foreign = || async {
        let told = checkpoint().await;
        if was_cancelled(&told) {
            std::future::pending::<()>().await;
        }
        told
    };
    let found = complaint(move || {
        cancel_everywhere(foreign);
    });
    assert!(
        found.contains("\"scenario\" at ") && found.contains("was dropped while it cleaned up"),
        "{found}"
    );
    CancelEverywhere::new().allow_cut_cleanup().run(foreign);
}

/// What only a drop in the middle breaks.
#[test]
fn test_3_a_future_dropped_half_way_is_found() {
    let open = Arc::new(Mutex::new(0));
    let files = open.clone();
    let scenario = move || {
        let open = open.clone();
        async move {
            *open.lock().unwrap() = 1;
            let slept = sleep(SECOND).await;
            // Told or not it is closed; dropped it is not.
            *open.lock().unwrap() = 0;
            slept
        }
    };
    let check = move || {
        let open = *files.lock().unwrap();
        assert_eq!(open, 0, "a file is left open");
    };
    cancel_everywhere_then(scenario.clone(), check.clone());
    let found = complaint(move || {
        CancelEverywhere::new()
            .may_be_dropped()
            .run_then(scenario, check);
    });
    assert!(
        found.contains("with its future dropped") && found.contains("KINFOLK_POINT=drop-future@"),
        "{found}"
    );
}

/// Clean-up is stopped a second time, in its middle.
#[test]
fn test_3_clean_up_is_stopped_again() {
    let found = complaint(move || {
        cancel_everywhere(|| async {
            let told = sleep(SECOND).await;
            if told.is_err() {
                cleanup(async {
                    for _ in 0..3 {
                        yield_now().await?;
                    }
                    assert!(
                        !told_of_shutdown(),
                        "a second stop came in the middle of clean-up"
                    );
                    Ok::<_, Error>(())
                })
                .await
                .map_err(|error| Error::msg(error.to_string()))?;
            }
            told.map_err(Error::from)
        });
    });
    assert!(
        found.contains("and a second stop") && found.contains("KINFOLK_POINT=twice@"),
        "{found}"
    );
}

fn told_of_shutdown() -> bool {
    let job = current_job().expect("inside a job");
    std::iter::successors(Some(job), |job| job.parent()).any(|job| {
        job.reason()
            .is_some_and(|why| why.root_cause().kind() == kinfolk_core::ReasonKind::Shutdown)
    })
}

/// The check sees the simulated disk: what a stop leaves there must be in order.
#[test]
fn test_3_the_check_sees_the_disk() {
    let writes = |in_place: bool| {
        move || async move {
            let name = if in_place { "/state" } else { "/new" };
            let file = File::create(name).await?;
            file.write_all_at("half", 0).await.0?;
            file.write_all_at(" and half", 4).await.0?;
            file.close().await?;
            if !in_place {
                kinfolk_runtime::fs::rename(name, "/state").await?;
            }
            Ok::<_, Error>(())
        }
    };
    let whole = |kernel: &SimKernel| {
        if let Some(state) = kernel.get("/state") {
            assert_eq!(String::from_utf8_lossy(&state), "half and half");
        }
    };
    let found = complaint(move || {
        CancelEverywhere::new().run_then_with_io(writes(true), whole);
    });
    assert!(
        found.contains("a cancel at point") && found.contains("half and half"),
        "{found}"
    );
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let files = seen.clone();
    CancelEverywhere::new().run_then_with_io(writes(false), move |kernel| {
        whole(kernel);
        files.lock().unwrap().insert(kernel.files());
    });
    // None, the new one alone, and the whole.
    assert_eq!(seen.lock().unwrap().len(), 3, "{seen:?}");
}

/// A run that does not come from the seed alone is not said to replay.
#[test]
fn test_3_a_run_that_does_not_replay_is_called_that() {
    let runs = Arc::new(Mutex::new(0));
    let found = complaint(move || {
        cancel_everywhere(move || {
            let runs = runs.clone();
            async move {
                let run = {
                    let mut runs = runs.lock().unwrap();
                    *runs += 1;
                    *runs
                };
                assert_ne!(run, 5, "the fifth run ever");
                checkpoint().await
            }
        });
    });
    assert!(
        found.contains("did not fail") && found.contains("does not come from the seed"),
        "{found}"
    );
    assert!(!found.contains("KINFOLK_POINT="), "{found}");
}

#[test]
fn test_3_a_tour_of_nothing_is_refused() {
    let found = complaint(|| {
        let _ = CancelEverywhere::new().seeds(0);
    });
    assert!(found.contains("would try nothing"), "{found}");
    let found = complaint(|| {
        let _ = CancelEverywhere::new().most(0);
    });
    assert!(found.contains("would stop nothing"), "{found}");
}

/// `KINFOLK_POINT` runs one alone; what it cannot read is an error. The variables are
/// a process's, so these run in another.
#[test]
fn test_3_one_run_alone() {
    const INNER: &str = "KINFOLK_TEST_EVERYWHERE_INNER";
    if std::env::var_os(INNER).is_some() {
        let went = cancel_everywhere(|| async {
            checkpoint().await?;
            checkpoint().await
        });
        print!("runs={}", went.runs);
        return;
    }
    let run = |variables: &[(&str, &str)]| {
        let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
        inner.args(["--exact", "test_3_one_run_alone", "--nocapture"]);
        inner.env(INNER, "1");
        inner.env_remove("KINFOLK_SEED").env_remove("KINFOLK_SEEDS");
        inner.envs(variables.iter().copied());
        let out = inner.output().unwrap();
        let said = [out.stdout, out.stderr].concat();
        (
            out.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let (ok, said) = run(&[
        ("KINFOLK_SEED", "2"),
        ("KINFOLK_POINT", "interrupt@point:2"),
    ]);
    assert!(ok && said.contains("runs=1"), "{said}");
    let (ok, said) = run(&[("KINFOLK_POINT", "17")]);
    assert!(
        !ok && said.contains("KINFOLK_POINT=17 names no run"),
        "{said}"
    );
    let (ok, said) = run(&[("KINFOLK_SEED", "two")]);
    assert!(
        !ok && said.contains("KINFOLK_SEED must be a number, not \"two\""),
        "{said}"
    );
    let (ok, all) = run(&[]);
    let (fine, fewer) = run(&[("KINFOLK_SEEDS", "1")]);
    let runs = |said: &str| -> u64 {
        let (_, after) = said.split_once("runs=").unwrap();
        let digits = after.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    };
    assert!(ok && fine);
    // Seven tours of one seed, nine of three.
    assert!(runs(&all) > runs(&fewer), "{all}\n{fewer}");
}
