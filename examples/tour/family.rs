//! One family, five things that happen to it.

use std::time::Duration;

use kinfolk::tokio::Root;
use kinfolk::{Error, Scope, cleanup, park, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

fn show(root: &Root, title: &str) {
    println!("\n== {title}\n{}", root.snapshot().to_string().trim_end());
}

/// A child that works for ever and tidies up when it is told to stop.
async fn worker() -> kinfolk::Result<()> {
    let told = park().await;
    cleanup(sleep(10 * MS)).await?;
    told?;
    Ok(())
}

pub async fn tour(root: Root) -> kinfolk::Result<()> {
    // 1. A family: the scope's call returns when all of it has ended.
    let sum = Scope::named("family")
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
            show(&root, "A family: nothing in it outlives the call");
            Ok(left.await? + right.await?)
        })
        .await?;
    println!(
        "the call returned {sum}; living jobs: {}",
        root.counters().living()
    );

    // 2. One child fails: its sibling is told, cleans up, and is waited for.
    let failed = Scope::named("fragile")
        .run(async |s| {
            s.task("sibling").launch(worker());
            s.task("culprit").launch(async {
                sleep(5 * MS).await?;
                Err::<(), _>(Error::msg("disk full"))
            });
            let told = park().await;
            show(&root, "One child failed: the sibling is cleaning up");
            told?;
            Ok(())
        })
        .await
        .expect_err("a child failed");
    println!(
        "the call failed: {failed}\n  path: {}",
        failed.path().join(" > ")
    );

    // 3. A deadline: everything below it is told, and given time to tidy up.
    let late = Scope::named("hurried")
        .timeout(10 * MS)
        .run(async |s| {
            s.task("slow").launch(worker());
            let told = park().await;
            show(&root, "The deadline has passed: 'slow' is cleaning up");
            told?;
            Ok(())
        })
        .await
        .expect_err("it was too slow");
    println!("the call failed: {late}");

    // 4. One is cancelled from outside; what it cleans up still runs.
    let task = root.scope().task("uploader").spawn(worker());
    sleep(2 * MS).await?;
    task.cancel("the user closed the window");
    sleep(2 * MS).await?;
    show(&root, "Cancelled: 'uploader' is cleaning up");
    let outcome = task.outcome().await?;
    println!(
        "it ended: {}",
        outcome
            .reason()
            .map(ToString::to_string)
            .unwrap_or_default()
    );

    // 5. A call is dropped half-way, as a lost select! would do: what it had
    // started is cancelled, and the enclosing job waits for it.
    let half_way = timeout(Duration::MAX, async {
        let scope = Scope::named("dropped").run(async |s| {
            s.task("orphan elsewhere").launch(worker());
            park().await?;
            Ok(())
        });
        tokio::select! {
            _ = scope => {}
            () = tokio::time::sleep(5 * MS) => {}
        }
        show(
            &root,
            "Dropped half-way: the enclosing timeout waits for the rest",
        );
    })
    .await;
    half_way?;
    println!(
        "the call returned; living jobs: {}",
        root.counters().living()
    );
    Ok(())
}
