//! Who is told, who is dropped, and what becomes of the operation.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Job, Result, checkpoint, cleanup, current_job, scope, sleep, spawn, timeout,
    yield_now,
};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{nop, pipe};
use kinfolk_testkit::io::{Fault, OpKind};

use super::lab::IoLab;

/// Polls a future once; whether it was over at once.
async fn begin<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
}

pub async fn case_j13_told_at_entry_nothing_is_submitted(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let (audit, own) = (lab.audit.clone(), lab.clone());
    let path = lab.path("never");
    let task = spawn(async move {
        current_job().expect("a job").cancel("enough");
        let before = audit.submitted();
        let (written, buf) = writer.write(own.quarantine.filled("lost")).await;
        assert!(Error::from(written.expect_err("told")).is_cancelled());
        assert_eq!(&*buf, b"lost", "the buffer comes straight back");
        assert!(nop().await.is_err());
        assert!(File::create(path).await.is_err());
        assert_eq!(audit.submitted(), before, "the driver saw nothing");
        let kept = cleanup(async {
            let (written, _) = writer.write("kept").await;
            written
        });
        let written = kept.await.expect("in cleanup it works");
        assert!(written > 0);
        assert!(audit.submitted() > before);
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await?.is_cancelled());
    let (read, buf) = reader.read(lab.quarantine.buf(1)).await;
    assert_eq!((read?, &*buf), (1, &b"k"[..]));
    Ok(())
}

/// Also: M12, io-1.
pub async fn case_j10_told_while_it_waits_it_goes_on_after_the_end(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let own = lab.clone();
    let task = spawn(async move {
        let (read, buf) = reader.read(own.quarantine.buf(100)).await;
        // The only operation there is: the driver must have said that it is
        // over before anybody goes on.
        assert_eq!(own.under_way(), 0, "{:?}", own.audit);
        let error = read.expect_err("nothing was written");
        assert_eq!(error.kind(), std::io::ErrorKind::Other);
        assert_eq!(buf.len(), 0);
        Err::<(), Error>(error.into())
    });
    lab.until_waiting(1).await?;
    task.cancel("enough");
    let outcome = task.outcome().await?;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    // An interrupt may have ended it before.
    assert!(lab.audit.cancels() == 1 || lab.rough);
    drop(writer);
    Ok(())
}

/// Whichever comes first, the bytes or the cancel, nothing is lost: they are
/// read, or still there. What was read is told at the next point.
/// Also: M15.
pub async fn io_1_what_succeeded_is_returned_though_told(lab: IoLab) -> Result<()> {
    for round in 0..10 {
        // Once the cancel comes too late for sure.
        let too_late = round == 0 && !lab.rough;
        if too_late {
            lab.fault(OpKind::Read, Fault::Late(Duration::from_millis(2)));
            lab.fault(OpKind::Read, Fault::CancelTooLate);
        }
        let (reader, writer) = pipe()?;
        let reader = Arc::new(reader);
        let read: Arc<Mutex<Option<usize>>> = Arc::default();
        let (own, from, into) = (lab.clone(), reader.clone(), read.clone());
        let task = spawn(async move {
            let (read, buf) = from.read(own.quarantine.buf(8)).await;
            let bytes = match read {
                Ok(bytes) => {
                    assert_eq!(bytes, buf.len());
                    bytes
                }
                Err(error) => {
                    assert!(Error::from(error).is_cancelled());
                    assert_eq!(buf.len(), 0);
                    0
                }
            };
            *into.lock().expect("the answer") = Some(bytes);
            // Now that the job was cancelled for sure, the next point tells.
            while !current_job().expect("a job").cancel_requested() {
                yield_now().await?;
            }
            assert!(checkpoint().await.is_err(), "the next point tells");
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        lab.until_waiting(1).await?;
        let (written, _) = writer.write("x").await;
        assert_eq!(written?, 1);
        if round % 2 == 1 {
            yield_now().await?;
        }
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        let bytes = read.lock().expect("the answer").expect("it has ended");
        assert!(!too_late || bytes == 1, "a result that came all the same");
        drop(writer);
        let (left, _) = reader.read(lab.quarantine.buf(8)).await;
        assert_eq!(bytes + left?, 1, "a byte is read, or still there");
    }
    Ok(())
}

pub async fn io_3_dropped_half_way_it_is_adopted(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    for _ in 0..20 {
        let mut read = Box::pin(reader.read(lab.quarantine.buf(64)));
        assert!(!begin(&mut read).await);
        drop(read);
    }
    lab.until_no_buffers().await?;
    lab.until_under_way(0).await?;
    let (written, _) = writer.write("abc").await;
    let written = written?;
    let (read, buf) = reader.read(Vec::with_capacity(64)).await;
    let read = read?;
    assert!(read <= written && b"abc".starts_with(&buf));
    // Dropped before it was begun: the driver hears nothing of it.
    let before = lab.audit.submitted();
    drop(reader.read(lab.quarantine.buf(64)));
    assert_eq!(lab.audit.submitted(), before);
    Ok(())
}

/// The simulation's table of owners says whether one was left open.
pub async fn io_3_opened_for_nobody_it_is_closed(lab: IoLab) -> Result<()> {
    // Not each round begins an open: its task may be cancelled before.
    lab.faults(OpKind::Open, 10, Fault::CancelTooLate);
    for round in 0..10 {
        let path = lab.path("opened");
        let open = spawn(async move {
            let file = File::create(path).await?;
            drop(file);
            Ok::<_, Error>(())
        });
        if round % 2 == 0 {
            let mut open = Box::pin(File::create(lab.path("dropped")));
            begin(&mut open).await;
            drop(open);
        }
        yield_now().await?;
        open.cancel("enough");
        let _ = open.outcome().await?;
    }
    lab.until_under_way(0).await?;
    lab.assert_none_open();
    Ok(())
}

pub async fn io_1_a_timeout_around_a_read_loses_nothing(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let mut seen = 0;
    for round in 0..20_u64 {
        let read = timeout(Duration::from_micros(round * 10), async {
            let (read, buf) = reader.read(lab.quarantine.buf(64)).await;
            let bytes = read?;
            assert_eq!(bytes, buf.len());
            Ok::<_, Error>(bytes)
        });
        if round == 10 {
            let (written, _) = writer.write("abc").await;
            seen += 3 - written?;
        }
        match read.await {
            Ok(bytes) => seen += bytes,
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
    }
    drop(writer);
    loop {
        let (read, _) = reader.read(lab.quarantine.buf(64)).await;
        match read? {
            0 => break,
            bytes => seen += bytes,
        }
    }
    assert_eq!(seen, 3);
    Ok(())
}

pub async fn io_1_a_cancel_during_a_cancel(lab: IoLab) -> Result<()> {
    lab.fault(OpKind::Read, Fault::SlowCancel(Duration::from_millis(5)));
    let (reader, writer) = pipe()?;
    let own = lab.clone();
    let child: Arc<Mutex<Option<Job>>> = Arc::default();
    let parent: Arc<Mutex<Option<Job>>> = Arc::default();
    let (tell, told) = (child.clone(), parent.clone());
    let task = spawn(scope(async move |s| {
        *told.lock().expect("the job") = Some(s.job());
        let reads = s.launch(async move {
            let (read, _) = reader.read(own.quarantine.buf(16)).await;
            assert!(Error::from(read.expect_err("nothing comes")).is_cancelled());
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        *tell.lock().expect("the job") = Some(reads);
        Ok::<_, Error>(())
    }));
    lab.until_waiting(1).await?;
    let child = child.lock().expect("the job").take().expect("it reads");
    let parent = parent.lock().expect("the job").take().expect("it waits");
    child.cancel("enough");
    yield_now().await?;
    parent.cancel("more than enough");
    yield_now().await?;
    task.cancel("much more than enough");
    let _ = task.outcome().await?;
    assert!(child.is_ended());
    assert!(lab.audit.cancels() <= 1, "the system is asked once");
    drop(writer);
    Ok(())
}

pub async fn io_3_dropped_while_its_cancel_is_under_way(lab: IoLab) -> Result<()> {
    lab.fault(OpKind::Read, Fault::SlowCancel(Duration::from_millis(5)));
    let (reader, writer) = pipe()?;
    let own = lab.clone();
    let task = spawn(async move {
        let mut read = Box::pin(reader.read(own.quarantine.buf(16)));
        assert!(!begin(&mut read).await);
        current_job().expect("a job").cancel("enough");
        // Told now, and the system is asked; perhaps it answers at once.
        begin(&mut read).await;
        drop(read);
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await?.is_cancelled());
    lab.until_no_buffers().await?;
    drop(writer);
    Ok(())
}

pub async fn io_1_a_file_is_closed_though_told(lab: IoLab) -> Result<()> {
    for cancel_at_entry in [true, false] {
        let file = File::create(lab.path("a")).await?;
        let task = spawn(async move {
            if cancel_at_entry {
                current_job().expect("a job").cancel("enough");
            }
            let mut close = pin!(file.close());
            let closed = poll_fn(|cx| {
                let polled = close.as_mut().poll(cx);
                if !cancel_at_entry {
                    current_job().expect("a job").cancel("enough");
                }
                polled
            })
            .await;
            let _ = closed;
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        assert!(task.outcome().await?.is_cancelled());
        lab.until_under_way(0).await?;
        lab.assert_none_open();
    }
    Ok(())
}

pub async fn io_2_what_was_started_goes_on_though_told(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let own = lab.clone();
    let task = spawn(async move {
        let read = reader.start_read(own.quarantine.buf(8));
        current_job().expect("a job").cancel("enough");
        assert!(checkpoint().await.is_err());
        assert!(!read.is_done());
        cleanup(async {
            let (written, _) = writer.write("a").await;
            assert_eq!(written.expect("in cleanup it works"), 1);
            let (read, buf) = read.await;
            // An interrupt ends what was started for good.
            assert!(own.rough || (read.expect("the byte"), &*buf) == (1, &b"a"[..]));
            Ok::<_, Error>(())
        })
        .await?;
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await?.is_cancelled());
    Ok(())
}

pub async fn io_2_what_was_started_ends_with_its_job(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let own = lab.clone();
    let task = spawn(async move {
        for _ in 0..5 {
            drop(reader.start_read(own.quarantine.buf(8)));
        }
        Ok::<_, Error>(())
    });
    task.await?;
    lab.until_no_buffers().await?;
    assert_eq!(lab.under_way(), 0);
    drop(writer);
    Ok(())
}

/// What is left here is ended by the shutdown of the host. Also: M11.
pub async fn shutdown_1_operations_in_flight_end(lab: IoLab) -> Result<()> {
    for _ in 0..lab.limit * 2 {
        let (reader, writer) = pipe()?;
        let own = lab.clone();
        lab.root().launch(async move {
            let (read, _) = reader.read(own.quarantine.buf(16)).await;
            assert!(Error::from(read.expect_err("nothing comes")).is_cancelled());
            drop(writer);
            checkpoint().await?;
            Ok::<_, Error>(())
        });
    }
    let (reader, writer) = pipe()?;
    // Given up, and still with the driver when the host shuts down.
    let mut read = Box::pin(reader.read(lab.quarantine.buf(16)));
    begin(&mut read).await;
    drop(read);
    drop((reader, writer));
    sleep(Duration::from_micros(10)).await?;
    Ok(())
}
