//! Calls of several branches that are dropped while their losers clean up: what
//! has failed by then is given to the failure hook. outcome-3, handle-7.

use std::time::Duration;

use futures_util::future::{Either, select as foreign_select};
use kinfolk_core::{
    Error, ErrorKind, OrCancel, Result, Scope, all, all_settled, any, cleanup, for_each_concurrent,
    local_scope, park, race, scope, select, shield, sleep, spawn,
};
use kinfolk_testkit::Lab;

const MS: Duration = Duration::from_millis(1);

async fn fails_after(wait: Duration, words: &'static str) -> Result<u32> {
    sleep(wait).await?;
    Err(Error::msg(words))
}

/// A loser that takes its time.
async fn slow() -> Result<u32> {
    let _ = park().await;
    cleanup(sleep(20 * MS)).await?;
    Ok(1)
}

/// A loser that fails in its clean-up, and one more that takes its time.
async fn fails_late(words: &'static str) -> Result<u32> {
    let _ = park().await;
    cleanup(sleep(2 * MS)).await?;
    Err(Error::msg(words))
}

/// Polls `call` for 10 ms, and drops it.
async fn drop_after<C: Future>(call: C) {
    let (call, wait) = (Box::pin(call), Box::pin(shield(sleep(10 * MS))));
    match foreign_select(call, wait).await {
        Either::Left(_) => panic!("its loser still cleans up"),
        Either::Right((waited, _)) => waited.unwrap(),
    }
}

/// What the hook was given, with what stands beside it.
fn heard(lab: &Lab) -> Vec<String> {
    let say = |error: &Error| {
        let beside = error.suppressed().iter().map(|e| format!(" + {e}"));
        format!("{error}{}", beside.collect::<String>())
    };
    lab.take_failures().iter().map(say).collect()
}

/// outcome-3: each verb, as a tuple and from an iterator.
/// Also: handle-7.
pub async fn outcome_3_what_a_dropped_call_has_taken_in_is_reported(lab: Lab) {
    let no = || fails_after(MS, "no");
    drop_after(all((no(), slow()))).await;
    assert_eq!(heard(&lab), ["no"]);
    drop_after(race((no(), slow()))).await;
    assert_eq!(heard(&lab), ["no"]);
    drop_after(async { select!(no(), slow()).await }).await;
    assert_eq!(heard(&lab), ["no"]);
    let many = || {
        [true, false].map(async |fails| match fails {
            true => fails_after(MS, "no").await,
            false => slow().await,
        })
    };
    drop_after(all(many())).await;
    assert_eq!(heard(&lab), ["no"]);
    drop_after(race(many())).await;
    assert_eq!(heard(&lab), ["no"]);
    drop_after(for_each_concurrent(0..2, 2, async |n| match n {
        0 => no().await.map(drop),
        _ => slow().await.map(drop),
    }))
    .await;
    assert_eq!(heard(&lab), ["no"]);
    // These are results like any other; they are lost all the same.
    drop_after(all_settled((no(), shield(sleep(20 * MS))))).await;
    assert_eq!(heard(&lab), ["no"]);
    drop_after(all_settled(many())).await;
    assert_eq!(heard(&lab), ["no"]);
}

/// outcome-3: what failed after the first goes along with it, and a panic is a
/// failure.
/// Also: handle-7, outcome-2.
pub async fn outcome_3_a_dropped_call_reports_once(lab: Lab) {
    let no = || fails_after(MS, "no");
    drop_after(all((no(), fails_late("nor this"), slow()))).await;
    assert_eq!(heard(&lab), ["no (and 1 more) + nor this"]);
    drop_after(race((fails_late("nor this"), no(), slow()))).await;
    assert_eq!(heard(&lab), ["no (and 1 more) + nor this"]);
    let panics = async {
        sleep(MS).await?;
        std::panic::resume_unwind(Box::new("oh"));
        #[expect(unreachable_code, reason = "it says what the branch would yield")]
        Ok::<u32, Error>(0)
    };
    drop_after(race((panics, slow()))).await;
    let [panicked] = <[Error; 1]>::try_from(lab.take_failures()).expect("one");
    assert_eq!(panicked.kind(), ErrorKind::Panicked);
    // One that has a value to return has reported the loser's failure before.
    let won = async {
        sleep(MS).await?;
        Ok::<_, Error>(7)
    };
    drop_after(race((won, fails_late("a loser's"), slow()))).await;
    assert_eq!(heard(&lab), ["a loser's"]);
}

/// handle-7: `any` passes failures over, also if it is dropped; and a call that
/// has returned reports nothing.
pub async fn handle_7_what_is_not_lost_is_not_reported(lab: Lab) {
    drop_after(any((
        fails_after(MS, "no"),
        shield(sleep(20 * MS)).numbered(),
    )))
    .await;
    let error = all((fails_after(MS, "no"), slow())).await.unwrap_err();
    assert_eq!(error.to_string(), "no");
    race((fails_after(MS, "no"), slow())).await.unwrap_err();
    let ends = all_settled((fails_after(MS, "no"), slow_value())).await;
    assert_eq!(ends.0.unwrap_err().to_string(), "no");
    assert_eq!(heard(&lab), [""; 0]);
}

async fn slow_value() -> Result<u32> {
    sleep(5 * MS).await?;
    Ok(1)
}

/// `sleep` as a branch with a number.
trait Numbered {
    fn numbered(self) -> impl Future<Output = Result<u32>> + Send;
}

impl<F, E> Numbered for F
where
    F: Future<Output = Result<(), E>> + Send,
    E: Into<Error>,
{
    async fn numbered(self) -> Result<u32> {
        self.await.map_err(Into::into).map(|()| 1)
    }
}

/// outcome-3: dropped by `or_cancel` when the task is cancelled.
/// Also: cancel-5.
pub async fn outcome_3_or_cancel_loses_no_failure(lab: Lab) {
    let task = spawn(async {
        let call = all((fails_after(MS, "no"), slow()));
        call.or_cancel().await.map_err(Error::from)?
    });
    let each = spawn(async {
        let call = for_each_concurrent(0..2, 2, async |n| match n {
            0 => fails_after(MS, "nor this").await.map(drop),
            _ => slow().await.map(drop),
        });
        call.or_cancel().await.map_err(Error::from)?
    });
    sleep(10 * MS).await.unwrap();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    each.cancel("enough");
    assert!(each.outcome().await.unwrap().is_cancelled());
    assert_eq!(heard(&lab), ["no", "nor this"]);
}

/// outcome-3: dropped by a panic of the body around it.
/// Also: outcome-1.
pub async fn outcome_3_a_call_that_is_unwound_loses_no_failure(lab: Lab) {
    // A supervisor, so that the panic fails nothing else.
    let supervised = Scope::build().supervisor().run(async |s| {
        let unwound = s.spawn(async {
            let mut call = Box::pin(race((fails_after(MS, "no"), slow())));
            let wait = Box::pin(shield(sleep(10 * MS)));
            let early = foreign_select(&mut call, wait).await;
            assert!(matches!(early, Either::Right(_)));
            drop(early);
            std::panic::resume_unwind(Box::new("oh"));
            #[expect(unreachable_code, reason = "it says what the task would yield")]
            Ok::<u32, Error>(0)
        });
        let error = unwound.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        Ok(())
    });
    supervised.await.unwrap();
    assert_eq!(heard(&lab), ["no"]);
}

/// outcome-3: a failure that a family around the call has recorded is told there,
/// and not to the hook too.
/// Also: outcome-2.
pub async fn outcome_3_what_the_family_has_is_not_reported(lab: Lab) {
    let failed = scope(async |s| {
        let task = s.spawn(fails_after(MS, "no"));
        all((task, slow())).or_cancel().await?.map(drop)
    });
    assert_eq!(failed.await.unwrap_err().to_string(), "no");
    assert_eq!(heard(&lab), [""; 0]);
}

/// outcome-3: local tasks: dropped with their scope while another cleans up.
/// Also: handle-8.
pub async fn outcome_3_a_local_scope_that_is_dropped_loses_no_failure(lab: Lab) {
    let call = || {
        local_scope(async |s| {
            s.launch(fails_after(MS, "no"));
            s.launch(slow());
            let _ = park().await;
            cleanup(sleep(20 * MS)).await?;
            Ok(())
        })
    };
    drop_after(call()).await;
    assert_eq!(heard(&lab), ["no"]);
    // Its own children keep the one that failed open.
    let call = local_scope(async |s| {
        s.launch(async {
            kinfolk_core::launch(shield(sleep(20 * MS)));
            fails_after(MS, "no").await
        });
        Ok(park().await?)
    });
    drop_after(call).await;
    // The scope waits for the child's child.
    sleep(20 * MS).await.unwrap();
    assert_eq!(heard(&lab), ["no"]);
    // A call inside a local task.
    let call = local_scope(async |s| {
        s.launch(async { all((fails_after(MS, "no"), slow())).await.map(drop) });
        Ok(park().await?)
    });
    drop_after(call).await;
    assert_eq!(heard(&lab), ["no"]);
}
