//! One family, six things that happen to it.

use std::time::Duration;

use kinfolk::tokio::Root;
use kinfolk::{Error, Result, Scope, cleanup, park, shield, sleep, timeout};
use tokio::sync::oneshot;

const MS: Duration = Duration::from_millis(1);

/// Shows the living tree, below a title.
type Show = dyn Fn(&str) + Send + Sync;

pub async fn tour(root: Root) -> Result<()> {
    let living = || root.counters().living();
    let seen = root.clone();
    let show: &Show = &move |title| {
        println!("\n== {title}\n{}", seen.snapshot().to_string().trim_end());
    };

    let sum = builds_up(show).await?;
    println!("the call returned {sum}; living jobs: {}", living());

    let failed = fails(show).await.expect_err("a child failed");
    let path = failed.path().join(" > ");
    println!("the call failed: {failed}\n  path: {path}");

    let late = is_too_slow(show).await.expect_err("it was too slow");
    println!("the call failed: {late}");

    println!("it ended: {}", is_cancelled(show).await?);

    is_dropped(show).await?;
    println!("the call returned; living jobs: {}", living());

    let seen = root.clone();
    does_not_stop(&move |title| {
        println!("\n== {title}\n{}", seen.snapshot().stuck(10 * MS));
    })
    .await
}

/// A child that works for ever and tidies up when it is told to stop.
async fn worker() -> Result<()> {
    let told = park().await;
    cleanup(sleep(10 * MS)).await?;
    told?;
    Ok(())
}

/// The scope's call returns when all of the family has ended.
async fn builds_up(show: &Show) -> Result<u32> {
    Scope::named("family")
        .run(async |s| {
            let left = s.task("left").spawn(async {
                sleep(20 * MS).await?;
                Ok::<_, Error>(20)
            });
            let right = s.task("right").spawn(async {
                sleep(30 * MS).await?;
                Ok::<_, Error>(22)
            });
            sleep(5 * MS).await?;
            show("A family: nothing in it outlives the call");
            Ok(left.await? + right.await?)
        })
        .await
}

/// One child fails: its sibling is told, cleans up, and is waited for.
async fn fails(show: &Show) -> Result<()> {
    Scope::named("fragile")
        .run(async |s| {
            s.task("sibling").launch(worker());
            s.task("culprit").launch(async {
                sleep(5 * MS).await?;
                Err::<(), _>(Error::msg("disk full"))
            });
            let told = park().await;
            show("One child failed: the sibling is cleaning up");
            told?;
            Ok(())
        })
        .await
}

/// A deadline: everything below it is told, and given time to tidy up.
async fn is_too_slow(show: &Show) -> Result<()> {
    Scope::named("hurried")
        .timeout(10 * MS)
        .run(async |s| {
            s.task("slow").launch(worker());
            let told = park().await;
            show("The deadline has passed: 'slow' is cleaning up");
            told?;
            Ok(())
        })
        .await
}

/// One is cancelled from outside; what it cleans up still runs. Says why.
async fn is_cancelled(show: &Show) -> Result<String> {
    Scope::named("window")
        .run(async |s| {
            let task = s.task("uploader").spawn(worker());
            sleep(2 * MS).await?;
            task.cancel("the user closed the window");
            sleep(2 * MS).await?;
            show("Cancelled: 'uploader' is cleaning up");
            let outcome = task.outcome().await?;
            let reason = outcome.reason().map(ToString::to_string);
            Ok(reason.unwrap_or_default())
        })
        .await
}

/// A call is dropped half-way, as a lost select! would do: what it had started is
/// cancelled, and the enclosing job waits for it.
async fn is_dropped(show: &Show) -> Result<()> {
    timeout(Duration::MAX, async {
        let scope = Scope::named("dropped").run(async |s| {
            s.task("orphan elsewhere").launch(worker());
            park().await?;
            Ok(())
        });
        tokio::select! {
            ended = scope => ended?,
            slept = sleep(5 * MS) => slept?,
        }
        show("Dropped half-way: the enclosing timeout waits for the rest");
        Ok::<_, Error>(())
    })
    .await
}

/// A family that is to stop and takes its time: who is in the way, and why.
async fn does_not_stop(show: &Show) -> Result<()> {
    Scope::named("stubborn")
        .run(async |s| {
            let (end, ended) = oneshot::channel::<()>();
            let backup = s
                .task("backup")
                .spawn(Scope::named("copies").run(async |s| {
                    s.task("flush").launch(shield(sleep(40 * MS)));
                    s.task("upload").launch(async {
                        let _ = ended.await;
                    });
                    park().await?;
                    Ok(())
                }));
            sleep(2 * MS).await?;
            backup.cancel("the disk is full");
            sleep(20 * MS).await?;
            show("Cancelled, and still there after a while: ask why");
            drop(end);
            assert!(backup.outcome().await?.is_cancelled());
            Ok(())
        })
        .await
}

/// Whatever happens to the family, it can be stopped at each of its points.
#[test]
fn the_family_can_be_stopped_anywhere() {
    use kinfolk::ErrorKind::{self, Failed, TimedOut};
    use kinfolk::testkit::cancel_everywhere;

    /// How it ends if it is not stopped.
    fn planned(end: Result<()>, how: ErrorKind) -> Result<()> {
        match end {
            Err(error) if error.kind() == how => Ok(()),
            other => other.map(|()| unreachable!("it cannot go well")),
        }
    }
    let unseen: &Show = &|_| {};
    let went = [
        cancel_everywhere(move || builds_up(unseen)),
        cancel_everywhere(move || async move { planned(fails(unseen).await, Failed) }),
        cancel_everywhere(move || async move { planned(is_too_slow(unseen).await, TimedOut) }),
        cancel_everywhere(move || is_cancelled(unseen)),
        cancel_everywhere(move || is_dropped(unseen)),
        cancel_everywhere(move || does_not_stop(unseen)),
    ];
    for went in went {
        assert_eq!(went.forced, 0, "every wait hears it");
    }
}
