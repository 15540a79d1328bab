//! A pipeline with backpressure that stops without loss: a reader, two workers and a
//! writer, with little room between them. Told to stop, what is under way is finished, and
//! what was not begun comes back.

use std::time::Duration;

use kinfolk::sync::mpmc::{self, Receiver, Sender};
use kinfolk::{Result, cleanup, scope, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

#[kinfolk::main]
async fn main() -> Result<()> {
    let (read, written) = run_for(50 * MS).await?;
    println!("{read} pages read, {written} written: none is lost");
    Ok(())
}

/// Runs the pipeline for a while: how many pages were read, and how many written.
async fn run_for(time: Duration) -> Result<(u32, u32)> {
    scope(async |s| {
        let (pages, to_work) = mpmc::channel(2); // little room: the reader waits for the workers
        let (done, to_write) = mpmc::channel(2);
        let reader = s.spawn(async move { timeout(time, read(pages)).await });
        for _ in 0..2 {
            s.launch(work(to_work.clone(), done.clone()));
        }
        drop((to_work, done)); // the workers have theirs: when the last goes, the writer ends
        let written = write(to_write).await?;
        Ok((reader.await?, written))
    })
    .await
}

/// Reads pages until it is told to stop. A page that was not handed on comes back.
async fn read(pages: Sender<u32>) -> Result<u32> {
    let mut read = 0;
    loop {
        match pages.send(read).await {
            Ok(()) => read += 1,
            Err(error) => {
                let page = error.into_inner(); // to be put where the next reader finds it
                assert_eq!(page, read);
                return Ok(read);
            }
        }
    }
}

/// Works on pages until there are no more.
async fn work(pages: Receiver<u32>, done: Sender<u32>) -> Result<()> {
    while let Some(page) = pages.recv().await? {
        cleanup(finish(page, &done)).await?; // what was begun is finished
    }
    Ok(())
}

async fn finish(page: u32, done: &Sender<u32>) -> Result<()> {
    sleep(MS).await?;
    done.send(page).await?;
    Ok(())
}

async fn write(pages: Receiver<u32>) -> Result<u32> {
    let mut written = 0;
    while pages.recv().await?.is_some() {
        written += 1;
    }
    Ok(written)
}

#[kinfolk::test]
async fn nothing_is_lost() {
    let (read, written) = run_for(50 * MS).await.unwrap();
    assert!(read > 0);
    assert_eq!(read, written);
}
