//! Kinfolk under a foreign event loop: one that blocks on a file descriptor or
//! a deadline, as a GUI toolkit's does.
//!
//! The runtime has no thread of its own here. It says when it wants to be
//! pumped (`on_wake` writes to a pipe) and how long the loop may sleep
//! (`next_deadline`).

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use kinfolk::frame::Budget;
use kinfolk::runtime::{Cause, Runtime};
use kinfolk::{Main, Result, blocking, scope, sleep};

/// Sleeps until a byte comes or the time is up; says which.
fn wait(events: &mut UnixStream, until: Option<Instant>) -> std::io::Result<Option<u8>> {
    let left = until.map(|at| at.saturating_duration_since(Instant::now()));
    if left == Some(Duration::ZERO) {
        return Ok(None);
    }
    events.set_read_timeout(left)?;
    let mut byte = [0];
    match events.read(&mut byte) {
        Ok(_) => Ok(Some(byte[0])),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn work() -> Result<usize> {
    scope(async |s| {
        s.task("timer").launch(async {
            for n in 1..=3 {
                sleep(Duration::from_millis(30)).await?;
                println!("tick {n}");
            }
            Ok::<_, kinfolk::Error>(())
        });
        // A blocking call on another thread: its end wakes the loop.
        let read = blocking(|_| std::fs::read_to_string("/proc/self/comm")).await??;
        println!("this is {}", read.trim());
        Ok(read.len())
    })
    .await
}

fn main() -> Result<()> {
    let (mut events, wakes) = UnixStream::pair()?;
    let rt = Runtime::builder()
        .workers(0)
        .on_wake(move |cause| {
            let byte = if cause == Cause::Timer { b't' } else { b'w' };
            // A full pipe is no loss: the loop is about to read it.
            let _ = (&wakes).write(&[byte]);
        })
        .build()?;

    let work = rt.scope().task("work").on(Main).spawn(work());

    let mut turns = 0;
    let mut more = false;
    while !work.is_ended() {
        // With something left over from the last pump there is no sleep.
        let until = if more {
            Some(Instant::now())
        } else {
            rt.next_deadline()
        };
        let woken = wait(&mut events, until)?;
        let pumped = rt.pump(Budget::Turns(100))?;
        turns += 1;
        more = pumped.more;
        let why = match woken {
            Some(b't') => "a timer was set",
            Some(_) => "a task can go on",
            None => "the time is up",
        };
        println!(
            "loop {turns}: {why}; {} turns, {} timers",
            pumped.ran, pumped.fired
        );
    }
    println!(
        "{} bytes in {turns} rounds of the loop",
        rt.wait_for(work)??
    );
    Ok(())
}

#[test]
fn the_work_can_be_stopped_anywhere() {
    kinfolk::testkit::cancel_everywhere(work);
}
