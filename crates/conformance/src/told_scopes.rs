//! What a body opens while it cleans up, and how long it may stay in a foreign await.

use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use kinfolk_core::{
    Error, ErrorKind, Patience, Scope, any, checkpoint, park, scope, sleep, spawn, timeout,
};
use kinfolk_testkit::{Gate, Lab};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A wait that hears nothing until the gate opens.
async fn deaf(gate: Gate) -> Result<(), Error> {
    gate.wait().await;
    Ok(())
}

/// Spawns a task that is told, and then does what `clean_up` says; how long that
/// takes.
async fn after_told<F>(lab: &Lab, clean_up: F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = spawn(async move {
        let told = park().await;
        clean_up.await;
        told.map(drop).map_err(Error::from)
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("clean up"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    lab.elapsed() - before
}

/// cancel-6: a foreign await that ends in time is not cut, in scopes of any depth that a
/// told body has opened.
pub async fn cancel_6_a_scope_opened_while_cleaning_up_has_time(lab: Lab) {
    let gate = Gate::new();
    let opens = gate.clone();
    let opener = spawn(async move {
        sleep(20 * SEC).await?;
        opens.open();
        Ok::<_, Error>(())
    });
    let took = after_told(&lab, async move {
        let flushed = scope(async |_| scope(async |_| deaf(gate).await).await).await;
        flushed.expect("nothing cuts it");
    })
    .await;
    assert_eq!(took, 20 * SEC);
    opener.await.unwrap();
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-6: the patience that is set on such a scope holds there.
pub async fn cancel_6_a_scope_opened_while_cleaning_up_has_its_own_patience(lab: Lab) {
    let took = after_told(&lab, async {
        let hasty = Scope::named("hasty").patience(Patience {
            cleanup: 5 * SEC,
            ..Patience::default()
        });
        let cut = hasty.run_future(deaf(Gate::new())).await;
        assert_eq!(cut.unwrap_err().kind(), ErrorKind::Cancelled);
    })
    .await;
    assert_eq!(took, 5 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a timeout and a branch that a told body opens are asked for a limit of
/// their own, and are not told: they get the patience of those that cannot hear.
pub async fn cancel_6_a_timeout_opened_while_cleaning_up_is_not_told(lab: Lab) {
    let took = after_told(&lab, async {
        let cut = timeout(10 * MS, deaf(Gate::new())).await;
        assert_eq!(cut.unwrap_err().kind(), ErrorKind::Cancelled);
    })
    .await;
    assert_eq!(took, SEC);
    let took = after_told(&lab, async {
        any((deaf(Gate::new()), deaf(Gate::new())))
            .await
            .unwrap_err();
    })
    .await;
    assert_eq!(took, SEC);
}

/// cancel-6: a scope that was open when its body was told elsewhere has not been told.
pub async fn cancel_6_a_scope_that_was_open_before_is_not_told(lab: Lab) {
    let task = spawn(async {
        let both: FuturesUnordered<Boxed<Result<(), Error>>> = FuturesUnordered::new();
        both.push(Box::pin(scope(async |_| deaf(Gate::new()).await)));
        both.push(Box::pin(async {
            park().await?;
            Ok(())
        }));
        let ends: Vec<_> = both.collect().await;
        assert!(ends.iter().all(Result::is_err));
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("only one hears"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}
