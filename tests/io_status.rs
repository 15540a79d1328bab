//! Operations that go on by themselves: `start_…`, `IoOp`, `reap_next`, `reap_all`.

mod io_support;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use io_support::on_each_driver;
use kinfolk_core::{
    Error, JobState, OrCancel, Outcome, Scope, blocking, checkpoint, cleanup, current_job, detach,
    now, park, scope, shield, sleep, spawn, timeout,
};
use kinfolk_runtime::io::{IoOp, PipeReader, PipeWriter, pipe, reap_all, reap_next};
use kinfolk_testkit::io::{Fault, OpKind, SimIo};
use kinfolk_testkit::{Gate, Sim};

fn on_each<F, B>(name: &'static str, body: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output = Result<(), Error>>,
{
    on_each_driver(name, move |rt| rt.block_on(body()));
}

type Read = (std::io::Result<usize>, Vec<u8>);

fn start(reader: &PipeReader) -> IoOp<Read> {
    reader.start_read(Vec::with_capacity(64))
}

async fn send(writer: &PipeWriter, bytes: &'static [u8]) -> Result<(), Error> {
    let (written, _) = writer.write(bytes).await;
    assert_eq!(written?, bytes.len());
    Ok(())
}

fn is_ended_early(result: &std::io::Result<usize>) -> bool {
    let error = result.as_ref().expect_err("nothing was written");
    error.raw_os_error() == Some(libc_ecanceled())
}

/// `ECANCELED` on Linux.
fn libc_ecanceled() -> i32 {
    125
}

#[test]
fn io_2_a_cancel_of_the_job_leaves_it_alone() {
    on_each("leaves_alone", async || {
        let (reader, writer) = pipe()?;
        let (begun, told) = (Gate::new(), Gate::new());
        let task = spawn({
            let (begun, told) = (begun.clone(), told.clone());
            async move {
                let op = start(&reader);
                begun.open();
                park().await.expect_err("it is cancelled");
                assert!(!op.is_done());
                told.open();
                // Cancelled or not, it brings what comes.
                let (read, buf) = op.await;
                assert_eq!((read?, &*buf), (3, &b"abc"[..]));
                checkpoint().await?;
                Ok::<_, Error>(())
            }
        });
        begun.wait().await;
        task.cancel("enough");
        told.wait().await;
        send(&writer, b"abc").await?;
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
}

/// Also: M14, M15.
#[test]
fn case_j14_it_is_ended_early_by_itself_alone() {
    on_each("ended_early", async || {
        let (reader, writer) = pipe()?;
        let first = start(&reader);
        let second = start(&reader);
        second.cancel();
        let (read, buf) = second.await;
        assert!(is_ended_early(&read), "{read:?}");
        assert_eq!(buf.capacity(), 64);
        send(&writer, b"xyz").await?;
        let (read, buf) = first.await;
        assert_eq!((read?, &*buf), (3, &b"xyz"[..]));
        Ok(())
    });
}

#[test]
fn io_2_when_the_body_is_over_it_is_ended_early_and_waited_for() {
    on_each("body_over", async || {
        let (reader, _writer) = pipe()?;
        // It leaves the body as its value: that saves it from nothing.
        let op = spawn(async move { Ok::<_, Error>(start(&reader)) }).await?;
        assert!(op.is_done(), "the job has ended, and so has the operation");
        let (read, _) = op.await;
        assert!(is_ended_early(&read), "{read:?}");
        Ok(())
    });
}

#[test]
fn io_2_one_that_is_forgotten_does_not_keep_the_job() {
    on_each("forgotten", async || {
        let (reader, _writer) = pipe()?;
        let task = spawn(async move {
            std::mem::forget(start(&reader));
            Ok::<_, Error>(())
        });
        task.await?;
        let (reader, _writer) = pipe()?;
        scope(async |_s| {
            std::mem::forget(start(&reader));
            Ok(())
        })
        .await?;
        Ok(())
    });
}

#[test]
fn io_2_a_scope_that_is_dropped_half_way_ends_it_early() {
    on_each("half_way", async || {
        let (reader, writer) = pipe()?;
        let late = timeout(Duration::from_millis(2), async {
            let op = start(&reader);
            std::future::pending::<()>().await;
            drop(op);
            Ok::<_, Error>(())
        })
        .await;
        assert!(late.is_err(), "{late:?}");
        send(&writer, b"abc").await?;
        let (read, _) = reader.read(Vec::with_capacity(8)).await;
        assert_eq!(read?, 3, "what was ended early took nothing");
        Ok(())
    });
}

/// Also: M9.
#[test]
fn io_2_a_job_that_was_told_to_stop_begins_none() {
    on_each("begins_none", async || {
        let (reader, writer) = pipe()?;
        let task = spawn(async move {
            current_job().expect("a job").cancel("enough");
            let op = writer.start_write("lost");
            assert!(op.is_done());
            let (written, buf) = op.await;
            assert_eq!(buf, "lost");
            let error = written.expect_err("told");
            assert_eq!(error.kind(), ErrorKind::Other);
            cleanup(async {
                let (written, _) = writer.start_write("kept").await;
                written
            })
            .await?;
            Err::<(), _>(Error::from(error))
        });
        assert!(task.outcome().await?.is_cancelled());
        let (read, buf) = reader.read(Vec::with_capacity(16)).await;
        assert_eq!((read?, &*buf), (4, &b"kept"[..]));
        Ok(())
    });
}

/// Also: M7, M8, M17.
#[test]
fn src_m08_reaping_says_how_much_is_left() {
    on_each("reaping", async || {
        assert_eq!(reap_next().await, 0, "nothing was begun");
        let task = spawn(async {
            let mut pipes = Vec::new();
            for _ in 0..3 {
                pipes.push(pipe()?);
            }
            let ops: Vec<_> = pipes.iter().map(|(reader, _)| start(reader)).collect();
            send(&pipes[1].1, b"b").await?;
            assert_eq!(reap_next().await, 2);
            assert!(ops[1].is_done());
            current_job().expect("a job").cancel("enough");
            checkpoint().await.expect_err("it is cancelled");
            // Told, and waits all the same.
            ops[0].cancel();
            assert_eq!(reap_next().await, 1);
            ops[2].cancel();
            reap_all().await;
            assert!(ops.iter().all(IoOp::is_done));
            Ok::<_, Error>(())
        });
        match task.outcome().await? {
            Outcome::Failed(error) => Err(error.resume()),
            _ => Ok(()),
        }
    });
}

#[test]
fn io_2_it_can_be_directed_to_another_job() {
    on_each("directed", async || {
        let (reader, writer) = pipe()?;
        let here = Scope::current().expect("a scope");
        let op = spawn(async move {
            let op = start(&reader);
            Ok::<_, Error>(op.direct_to(&here).expect("it runs"))
        })
        .await?;
        assert!(!op.is_done(), "it goes on after the job that began it");
        send(&writer, b"abc").await?;
        let (read, _) = op.await;
        assert_eq!(read?, 3);
        // To one that is over it does not go.
        let (reader, _writer) = pipe()?;
        let over = spawn(async { Ok::<_, Error>(Scope::current().expect("a scope")) }).await?;
        let op = start(&reader).direct_to(&over).expect_err("it is over");
        op.cancel();
        assert!(is_ended_early(&op.await.0));
        Ok(())
    });
}

#[test]
fn io_2_waiting_for_it_can_be_made_a_point() {
    on_each("point", async || {
        let (reader, writer) = pipe()?;
        let (begun, gate) = (Gate::new(), Gate::new());
        let task = spawn({
            let (begun, gate) = (begun.clone(), gate.clone());
            async move {
                let mut op = start(&reader);
                begun.open();
                (&mut op).or_cancel().await.expect_err("it is cancelled");
                gate.open();
                let (read, _) = op.await;
                assert_eq!(read?, 3);
                Ok::<_, Error>(())
            }
        });
        begun.wait().await;
        task.cancel("enough");
        gate.wait().await;
        send(&writer, b"abc").await?;
        assert!(matches!(
            task.outcome().await?,
            Outcome::Completed(()) | Outcome::Cancelled { .. }
        ));
        Ok(())
    });
}

/// Its operation is cancelled, and the job does not end before the system has let
/// go of it.
#[test]
fn io_3_a_job_whose_body_is_over_waits_for_the_system() {
    on_each_driver("waits", |rt| {
        rt.block_on(async {
            let (reader, _writer) = pipe()?;
            let before = rt.gauges().io;
            let task = spawn(async move {
                let _op = start(&reader);
                Ok::<_, Error>(())
            });
            let job = task.job();
            task.await?;
            assert!(matches!(job.state(), JobState::Completed), "{job:?}");
            let io = rt.gauges().io.expect("a driver");
            let before = before.map_or((0, 0), |io| (io.submitted, io.completed));
            assert_eq!((io.submitted, io.completed), (before.0 + 1, before.1 + 1));
            assert_eq!(io.cancelled, 1, "nobody has written");
            Ok::<_, Error>(())
        })
    });
    // A system that takes its time.
    let ms = Duration::from_millis(1);
    for seed in 0..20 {
        let slow = SimIo::new().fault(OpKind::Read, 1, Fault::SlowCancel(10 * ms));
        let mut sim = Sim::builder(seed).io(slow).build();
        let ran = sim.run(async move {
            let (reader, writer) = pipe()?;
            let (body, began) = (Gate::new(), now());
            let ends = body.clone();
            let task = spawn(async move {
                let _op = start(&reader);
                // With the system, and waiting there.
                sleep(ms).await?;
                ends.open();
                Ok::<_, Error>(())
            });
            let job = task.job();
            body.wait().await;
            sleep(9 * ms).await?;
            assert_eq!(job.state(), JobState::Completing);
            task.await?;
            assert_eq!(now() - began, 11 * ms);
            // What was ended early has taken nothing: there is no reader left.
            drop(writer);
            Ok::<_, Error>(())
        });
        ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        sim.finish();
    }
}

/// M10: what a job that was told to stop can still do its i/o with. Nothing of it
/// takes the cancel back: outside the next point fails again.
#[test]
fn src_m10_ways_to_do_io_after_a_cancel() {
    on_each("hatches", async || {
        let (reader, writer) = pipe()?;
        let writer = Arc::new(writer);
        let write = {
            let writer = writer.clone();
            move |words: &'static str| {
                let writer = writer.clone();
                async move { writer.write(words).await.0.map(drop).map_err(Error::from) }
            }
        };
        let task = spawn(async move {
            current_job().expect("a job").cancel("enough");
            let no_longer = async || {
                write("lost ").await.expect_err("told");
                let called = blocking(|_| -> () { unreachable!("told before") });
                called.await.expect_err("told");
            };
            no_longer().await;
            // A flag of its own.
            shield(write("shield ")).await?;
            no_longer().await;
            cleanup(write("cleanup ")).await?;
            no_longer().await;
            // A task that is thrown away.
            cleanup(async { spawn(write("child ")).await }).await?;
            let thrown_away = cleanup(async { detach(write("detached ")).join().await });
            assert!(thrown_away.await?.is_completed());
            no_longer().await;
            // A call that blocks.
            let called = cleanup(async { blocking(|_| 7).await }).await?;
            assert_eq!(called, 7);
            no_longer().await;
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        assert!(task.outcome().await?.is_cancelled());
        drop(writer);
        let (read, buf) = reader.read(Vec::with_capacity(64)).await;
        let all = "shield cleanup child detached ";
        assert_eq!((read?, &*buf), (all.len(), all.as_bytes()));
        Ok(())
    });
}
