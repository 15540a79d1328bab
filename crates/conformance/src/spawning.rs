//! The spawning verbs at a scope that is cancelled, closed or over: which of
//! them is refused, and what is handed back.

use std::time::Duration;

use kinfolk_core::{
    Error, JobState, ReasonKind, Scope, SpawnError, Spawner, checkpoint, cleanup, current_job,
    launch, park, scope, sleep, spawn,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// handle-3: `spawn_atomic` into a job that is cancelled, a sibling having failed
/// a moment before: the child is attached, born cancelled, and reaches its first
/// point.
/// Also: tree-5.
pub async fn handle_3_spawn_atomic_attaches_to_a_cancelled_job(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let failed = scope(async move |s| {
        s.launch(async { Err::<(), _>(Error::msg("the sibling")) });
        let told = park().await.unwrap_err();
        assert_eq!(told.reason().kind(), ReasonKind::ChildFailed);
        let deep = words.clone();
        let atomic = s.spawn_atomic(async move {
            deep.say("entered");
            let told = checkpoint().await.unwrap_err();
            assert_eq!(told.reason().root_cause().kind(), ReasonKind::ChildFailed);
            deep.say("told");
            Err::<(), Error>(told.into())
        });
        assert_eq!(atomic.job().state(), JobState::Cancelling);
        assert_eq!(atomic.job().parent(), Some(s.job()));
        let outcome = cleanup(async { Ok::<_, Error>(atomic.outcome().await) }).await;
        assert!(outcome.unwrap().unwrap().is_cancelled());
        let now = s.spawn_now(async { panic!("spawn_now is refused in a cancelled job") as () });
        assert!(now.is_ended());
        told.into_err()
    })
    .await
    .unwrap_err();
    assert_eq!(failed.to_string(), "the sibling");
    assert_eq!(log.text(), "entered told");
}

trait IntoErr {
    fn into_err(self) -> kinfolk_core::Result<()>;
}

impl IntoErr for kinfolk_core::Cancelled {
    fn into_err(self) -> kinfolk_core::Result<()> {
        Err(self.into())
    }
}

/// handle-3: `spawn_atomic` is refused by a job that is closed, and by one that
/// is cancelled and whose body has ended.
/// Also: tree-5.
pub async fn handle_3_spawn_atomic_is_refused_once_the_body_has_ended(_lab: Lab) {
    let tally = Tally::new();
    let (gate, entered) = (Gate::new(), Gate::new());
    // A task whose body is over and whose child goes on, cleaning up.
    let (held, inside, begun) = (gate.clone(), entered.clone(), Gate::new());
    let task = spawn(async move {
        let begins = begun.clone();
        launch(async move {
            begins.open();
            let _told = park().await;
            inside.open();
            held.wait().await;
        });
        begun.wait().await;
    });
    let job = task.job();
    while job.state() != JobState::Completing {
        kinfolk_core::yield_now().await.unwrap();
    }
    assert!(task.cancel("now"));
    entered.wait().await;
    let late = Scope::of_job(&job).spawn_atomic(tally.count(async {}));
    assert!(late.is_ended());
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());

    // A scope whose body is over.
    let gate = Gate::new();
    let (held, seen) = (gate.clone(), tally.clone());
    scope(async move |s| {
        let inner = s.clone();
        s.launch(async move {
            while inner.job().state() != JobState::Completing {
                kinfolk_core::yield_now().await?;
            }
            inner.cancel("its body is over");
            assert!(inner.spawn_atomic(seen.count(async {})).is_ended());
            held.open();
            Ok::<_, Error>(())
        });
        Ok(())
    })
    .await
    .unwrap();
    gate.wait().await;

    // Closed.
    let refused = scope(async |s| {
        s.close();
        let refused = s.spawn_atomic(tally.count(async {}));
        Ok(refused.job().reason().map(|reason| reason.kind()))
    })
    .await
    .unwrap();
    assert_eq!(refused, Some(ReasonKind::ScopeEnded));
    assert_eq!((tally.polls(), tally.drops()), (0, 3));
}

/// tree-5: every spawning verb has a form that hands the future back when it is
/// refused, and attaches it when it is not.
pub async fn tree_5_every_verb_has_a_form_that_hands_the_future_back(_lab: Lab) {
    scope(async |s| {
        let inner = Scope::named("inner").run(async |inner| {
            assert_eq!(inner.try_spawn(async { 1 }).unwrap().await?, 1);
            assert_eq!(inner.try_spawn_now(async { 2 }).unwrap().await?, 2);
            assert_eq!(inner.try_spawn_atomic(async { 3 }).unwrap().await?, 3);
            assert_eq!(inner.try_spawn_lazy(async { 4 }).unwrap().await?, 4);
            assert_eq!(inner.try_spawn_service(async { 5 }).unwrap().await?, 5);
            let job = inner.try_launch(async { 6 }).unwrap();
            assert!(job.join().await?.is_completed());
            Ok(inner)
        });
        let ended = inner.await?;
        let named = |scope: &Scope| -> Spawner { scope.task("refused") };
        for scope in [&ended, &closed(&s)] {
            let tally = Tally::new();
            let body = || tally.count(async {});
            let back = (
                back(scope.try_spawn(body()).unwrap_err()),
                back(scope.try_spawn_now(body()).unwrap_err()),
                back(named(scope).try_spawn_atomic(body()).unwrap_err()),
                back(scope.try_spawn_lazy(body()).unwrap_err()),
                back(scope.try_spawn_service(body()).unwrap_err()),
                back(scope.try_launch(body()).unwrap_err()),
            );
            assert_eq!((tally.drops(), tally.polls()), (0, 0));
            drop(back);
            assert_eq!((tally.drops(), tally.polls()), (6, 0));
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// The future that was handed back.
fn back<F>(refused: SpawnError<F>) -> F {
    assert!(refused.is_ended(), "{refused}");
    refused.future
}

fn closed(scope: &Scope) -> Scope {
    scope.close();
    scope.clone()
}

/// handle-9: `drain` inside its own scope closes it and waits for its children.
pub async fn handle_9_drain_inside_its_scope_waits_for_the_children(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let before = lab.elapsed();
    scope(async move |s| {
        let (one, two) = (words.clone(), words.clone());
        s.launch(async move {
            sleep(10 * MS).await?;
            one.say("child");
            Ok::<_, Error>(())
        });
        // A service lives on: it works for the children, and for the body.
        s.spawn_service(park()).into_job();
        let unstarted = s.spawn_lazy(async {});
        let drained = s.drain(20 * MS).await?;
        assert!(drained.is_completed(), "{drained:?}");
        two.say("drained");
        assert!(s.is_closed() && !s.cancel_requested());
        drop(unstarted);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "child drained");
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// handle-9: at the grace `drain` inside its own scope cancels the children and
/// waits for that; the body goes on.
pub async fn handle_9_drain_inside_its_scope_cancels_the_children_at_the_grace(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let before = lab.elapsed();
    scope(async move |s| {
        let cleans = words.clone();
        s.launch(async move {
            let told = park().await;
            cleanup(sleep(5 * MS)).await?;
            cleans.say("clean");
            told?;
            Ok::<_, Error>(())
        });
        let drained = s.drain(20 * MS).await?;
        assert!(drained.is_cancelled(), "{drained:?}");
        words.say("drained");
        checkpoint().await?;
        assert!(!s.cancel_requested());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "clean drained");
    assert_eq!(lab.elapsed() - before, 25 * MS);
}

/// handle-9: a child that drains the scope it is part of waits for its siblings,
/// not for itself; and so does an inner scope of the body.
pub async fn handle_9_drain_by_a_child_waits_for_its_siblings(lab: Lab) {
    let before = lab.elapsed();
    scope(async |s| {
        s.launch(sleep(10 * MS));
        let family = s.clone();
        s.launch(async move {
            let me = current_job().unwrap();
            assert!(family.drain(20 * MS).await?.is_completed());
            assert!(!me.cancel_requested());
            sleep(MS).await?;
            Ok::<_, Error>(())
        });
        let family = s.clone();
        scope(async move |_| {
            checkpoint().await?;
            assert!(family.drain(50 * MS).await?.is_completed());
            Ok(())
        })
        .await
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed() - before, 11 * MS);
}

/// handle-9: a job that drains from inside and is cancelled meanwhile is told, and
/// so are the children.
pub async fn handle_9_drain_inside_its_scope_is_a_point(lab: Lab) {
    let before = lab.elapsed();
    let task = spawn(scope(async |s| {
        s.launch(park());
        let told = s.drain(100 * MS).await.unwrap_err();
        assert_eq!(told.reason().root_cause().text(), Some("enough"));
        told.into_err()
    }));
    sleep(10 * MS).await.unwrap();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 10 * MS);
}
