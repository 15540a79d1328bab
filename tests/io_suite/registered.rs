//! Buffers that rings register, on every driver alike.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::pin;
use std::task::Poll;

use kinfolk_core::{Error, Result, checkpoint, current_job, sleep, spawn};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{IoBuf, RegisteredBufs, pipe, registered};
use kinfolk_testkit::io::{Fault, OpKind};

use super::lab::IoLab;

/// Waits until all of them are back.
async fn until_all_are_back(pool: &RegisteredBufs, all: usize) -> Result<()> {
    while pool.free() < all {
        sleep(std::time::Duration::from_micros(50)).await?;
    }
    Ok(())
}

pub async fn io_1_registered_buffers_carry_bytes_and_come_back(lab: IoLab) -> Result<()> {
    let pool = registered(2, 4096);
    let file = File::create(lab.path("registered")).await?;
    let mut buf = pool.take().await?;
    for (n, byte) in buf.iter_mut().enumerate() {
        *byte = n as u8;
    }
    let (written, buf) = file.write_all_at(buf, 0).await;
    written?;
    // A part of it, for the second page.
    let (written, buf) = file.write_all_at(buf.slice(100..200), 4096).await;
    written?;
    let mut room = pool.try_take().expect("the other one");
    assert!(pool.try_take().is_none(), "both are out");
    room.fill(0xff);
    let (read, room) = file.read_exact_at(room, 0).await;
    read?;
    assert!(room.iter().zip(0..).all(|(byte, n)| *byte == n as u8));
    let part = room.slice(10..110);
    let (read, part) = file.read_exact_at(part, 4096).await;
    read?;
    assert!(part.iter().zip(100..).all(|(byte, n)| *byte == n));
    let (told, buf) = file.write_then_sync(buf.into_inner(), 8192).await;
    told?;
    drop((part, buf));
    assert_eq!(pool.free(), 2);
    Ok(())
}

pub async fn io_1_registered_buffers_come_back_with_errors_and_cancels(lab: IoLab) -> Result<()> {
    let pool = registered(1, 512);
    let file = File::create(lab.path("registered")).await?;
    let (written, buf) = file.write_all_at(pool.take().await?, 0).await;
    written?;
    lab.fault(OpKind::Write, Fault::NoSpace);
    let (written, buf) = file.write_at(buf, 0).await;
    let full = written.expect_err("a fault");
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    // Told while it waits.
    let (reader, writer) = pipe()?;
    let task = spawn(async move {
        let (read, buf) = reader.read(buf).await;
        assert!(Error::from(read.expect_err("told")).is_cancelled());
        assert_eq!(buf.len(), 512);
        // And at entry.
        let (read, buf) = reader.read(buf).await;
        assert!(Error::from(read.expect_err("told")).is_cancelled());
        drop(buf);
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.until_under_way(1).await?;
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    drop(writer);
    assert_eq!(pool.free(), 1);
    Ok(())
}

/// Also: io-1.
pub async fn io_3_a_pool_is_dropped_while_its_buffer_is_under_way(lab: IoLab) -> Result<()> {
    let file = File::create(lab.path("registered")).await?;
    let (written, _) = file.write_all_at(vec![7; 8192], 0).await;
    written?;
    let pool = registered(2, 4096);
    {
        let mut read = pin!(file.read_at(pool.take().await?, 0));
        // Begun, and dropped.
        let _ = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
    }
    until_all_are_back(&pool, 2).await?;
    // Begun, and all but the operation is gone.
    let read = file.start_read_at(pool.take().await?, 4096);
    drop(pool);
    let (read, buf) = read.await;
    assert_eq!(buf.len(), 4096);
    match read {
        Ok(read) => assert!(read > 0 && buf[..read].iter().all(|byte| *byte == 7)),
        // What goes on by itself is not begun again.
        Err(error) => assert!(lab.rough && error.kind() == ErrorKind::Interrupted),
    }
    Ok(())
}

pub async fn io_1_those_who_wait_for_a_buffer_are_served_in_order(lab: IoLab) -> Result<()> {
    let pool = registered(1, 16);
    let out = pool.take().await?;
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..4 {
        let (pool, order) = (pool.clone(), order.clone());
        tasks.push(spawn(async move {
            let buf = pool.take().await?;
            order.lock().expect("no panic").push(n);
            drop(buf);
            Ok::<_, Error>(())
        }));
        lab.until_waiting(n + 1).await?;
    }
    // One that leaves the queue takes nothing with it.
    let second = tasks.remove(1);
    second.cancel("enough");
    assert!(second.outcome().await?.is_cancelled());
    assert!(pool.try_take().is_none());
    drop(out);
    for task in tasks {
        task.await?;
    }
    assert_eq!(*order.lock().expect("no panic"), [0, 2, 3]);
    // Told at entry.
    let own = pool.clone();
    let task = spawn(async move {
        current_job().expect("a job").cancel("enough");
        own.take().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await?.is_cancelled());
    assert_eq!(pool.free(), 1);
    Ok(())
}
