//! I/O on the native runtime.

mod io_support;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use io_support::{Scratch, on_each_driver as on_each};
use kinfolk_core::{
    Error, ErrorKind, checkpoint, cleanup, current_job, scope, sleep, spawn, timeout,
};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{self, pipe};
use kinfolk_testkit::Gate;

#[test]
fn io_1_a_file_is_written_and_read() {
    on_each("file", |rt| {
        let scratch = Scratch::new();
        let path = scratch.path("a");
        rt.block_on(async {
            let file = File::create(&path).await?;
            let (written, buf) = file.write_all_at(vec![7_u8; 100_000], 0).await;
            written?;
            assert_eq!(buf.len(), 100_000);
            file.sync_data().await?;
            file.sync_all().await?;
            let (read, buf) = file.read_exact_at(vec![0; 100_000], 0).await;
            read?;
            assert!(buf.iter().all(|byte| *byte == 7));
            let (read, buf) = file.read_at(Vec::with_capacity(10), 99_995).await;
            assert_eq!((read?, buf), (5, vec![7; 5]));
            let (read, _) = file.read_at(Vec::with_capacity(10), 100_000).await;
            assert_eq!(read?, 0);
            file.close().await?;
            Ok::<_, Error>(())
        })
    });
}

/// Also: M1, M12.
#[test]
fn io_1_told_while_it_waits_the_buffer_comes_back() {
    on_each("told", |rt| {
        rt.block_on(async {
            let (reader, writer) = pipe()?;
            let reader = Arc::new(reader);
            let back = {
                let reader = reader.clone();
                let task = spawn(async move {
                    let (read, buf) = reader.read(Vec::with_capacity(100)).await;
                    let error = read.expect_err("nothing was written");
                    assert_eq!(error.kind(), std::io::ErrorKind::Other);
                    assert_eq!(buf.capacity(), 100);
                    let error = Error::from(error);
                    assert_eq!(error.kind(), ErrorKind::Cancelled);
                    Err::<(), Error>(error)
                });
                sleep(Duration::from_millis(2)).await?;
                task.cancel("enough");
                task.outcome().await?
            };
            assert!(back.is_cancelled(), "{back:?}");
            // Nothing was lost.
            let (written, _) = writer.write("abc").await;
            assert_eq!(written?, 3);
            let (read, buf) = reader.read(Vec::with_capacity(100)).await;
            assert_eq!((read?, &*buf), (3, &b"abc"[..]));
            Ok::<_, Error>(())
        })
    });
}

#[test]
fn case_j13_a_cancelled_job_begins_nothing_but_in_cleanup() {
    on_each("begins_nothing", |rt| {
        rt.block_on(async {
            let (reader, writer) = pipe()?;
            let task = spawn(async move {
                current_job().expect("a job").cancel("enough");
                let (written, buf) = writer.write("lost").await;
                assert!(Error::from(written.expect_err("told")).is_cancelled());
                assert_eq!(buf, "lost");
                assert!(io::nop().await.is_err());
                cleanup(async {
                    let (written, _) = writer.write("kept").await;
                    assert_eq!(written.expect("in cleanup"), 4);
                })
                .await?;
                checkpoint().await?;
                Ok::<_, Error>(())
            });
            assert!(task.outcome().await?.is_cancelled());
            let (read, buf) = reader.read(Vec::with_capacity(100)).await;
            assert_eq!((read?, &*buf), (4, &b"kept"[..]));
            Ok::<_, Error>(())
        })
    });
}

#[test]
fn io_3_dropped_half_way_nothing_is_lost_to_the_next() {
    on_each("dropped", |rt| {
        rt.block_on(async {
            let (reader, writer) = pipe()?;
            for round in 0..50_u8 {
                let late = timeout(Duration::from_micros(u64::from(round) * 10), async {
                    reader.read(vec![0; 64]).await.0
                })
                .await;
                assert!(late.is_err(), "{late:?}");
            }
            let (written, _) = writer.write(vec![1, 2, 3]).await;
            assert_eq!(written?, 3);
            let (read, buf) = reader.read(Vec::with_capacity(64)).await;
            assert_eq!((read?, buf), (3, vec![1, 2, 3]));
            Ok::<_, Error>(())
        })
    });
}

#[test]
fn io_1_many_at_once() {
    on_each("many", |rt| {
        let pipes = 500;
        rt.block_on(scope(async |s| {
            let mut tasks = Vec::new();
            for n in 0..pipes {
                let (reader, writer) = pipe()?;
                tasks.push(s.spawn(async move {
                    let (read, buf) = reader.read(Vec::with_capacity(16)).await;
                    read?;
                    Ok::<_, Error>(buf)
                }));
                s.launch(async move {
                    let (written, _) = writer.write(vec![n as u8; 3]).await;
                    written?;
                    Ok::<_, Error>(())
                });
            }
            for (n, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.await?, vec![n as u8; 3]);
            }
            Ok(())
        }))
    });
}

/// Lets what can go on go on, without a limit of its own.
async fn some_turns() {
    for _ in 0..50 {
        io::nop().await.expect("a trip");
        kinfolk_core::yield_now().await.expect("not cancelled");
    }
}

#[test]
fn io_1_a_scope_has_so_many_under_way_at_once() {
    on_each("limit", |rt| {
        rt.block_on(scope(async |s| {
            let mut writers = Vec::new();
            let mut readers = Vec::new();
            for _ in 0..5 {
                let (reader, writer) = pipe()?;
                writers.push(writer);
                readers.push(reader);
            }
            let log = kinfolk_testkit::Log::new();
            let said = log.clone();
            s.launch(io::at_most(
                2,
                scope(async move |s| {
                    for (n, reader) in readers.into_iter().enumerate() {
                        let log = said.clone();
                        let began = Gate::new();
                        let begins = began.clone();
                        s.launch(async move {
                            let mut read = pin!(reader.read(Vec::with_capacity(8)));
                            let first = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                            begins.open();
                            let (bytes, _) = match first {
                                Poll::Ready(read) => read,
                                Poll::Pending => read.await,
                            };
                            bytes?;
                            log.say(n.to_string());
                            Ok::<_, Error>(())
                        });
                        // In this order.
                        began.wait().await;
                    }
                    Ok(())
                }),
            ));
            for (n, seen) in [
                (3, ""),
                (2, ""),
                (1, "1 2 3"),
                (4, "1 2 3 4"),
                (0, "1 2 3 4 0"),
            ] {
                writers[n].write("x").await.0?;
                while log.text().len() < seen.len() {
                    kinfolk_core::yield_now().await?;
                }
                some_turns().await;
                assert_eq!(log.text(), seen);
            }
            Ok(())
        }))
    });
}
