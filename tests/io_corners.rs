//! I/O where two things meet: each of these has gone wrong once, or could have.

mod io_support;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use io_support::on_each_driver as on_each;
use kinfolk_core::kit::cancelled_in;
use kinfolk_core::{
    Budget, Cancelled, Error, ErrorKind, Pool, Scope, Tree, WaitKind, blocking, checkpoint,
    current_job, on, scope, spawn, timeout, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{self, IoDriver, at_most, pipe, reap_next};
use kinfolk_testkit::{Gate, VirtualClock, guarded};

#[test]
fn io_2_begun_after_a_scope_that_had_to_wait() {
    on_each("after_a_scope", |rt| {
        rt.block_on(async {
            let (reader, writer) = pipe()?;
            scope(async |s| {
                s.launch(async {
                    yield_now().await?;
                    yield_now().await
                });
                Ok(())
            })
            .await?;
            let op = reader.start_read(Vec::with_capacity(8));
            assert!(!op.is_done());
            writer.write("abc").await.0?;
            assert_eq!(op.await.0?, 3);
            Ok::<_, Error>(())
        })
    });
}

/// The body of the scope is over, that of the task it is in is not.
#[test]
fn io_2_directed_to_a_task_that_waits_in_a_scope() {
    on_each("in_a_scope", |rt| {
        let tree = rt.tree().clone();
        rt.block_on(async {
            let (reader, writer) = pipe()?;
            let directed = Arc::new(Mutex::new(None));
            scope(async |s| {
                let (here, tree, directed) = (s.clone(), tree.clone(), directed.clone());
                s.task("directs").launch(async move {
                    until_children(&tree).await?;
                    let op = reader.start_read(Vec::with_capacity(8));
                    let op = op.direct_to(&here).expect("the body of its task runs");
                    *directed.lock().expect("one at a time") = Some(op);
                    Ok::<_, Error>(())
                });
                Ok(())
            })
            .await?;
            // The scope has not waited for it, and did not end it.
            let op = directed.lock().expect("one at a time").take();
            let op = op.expect("it was directed to us");
            assert!(!op.is_done());
            writer.write("abc").await.0?;
            assert_eq!(op.await.0?, 3);
            Ok::<_, Error>(())
        })
    });
}

/// Waits until a job waits for its children.
async fn until_children(tree: &Tree) -> Result<(), Error> {
    loop {
        let snapshot = tree.snapshot();
        let mut waits = snapshot.nodes().iter().filter_map(|node| node.waits_on);
        if waits.any(|(kind, ..)| kind == WaitKind::Children) {
            return Ok(());
        }
        yield_now().await?;
    }
}

#[test]
fn io_3_a_cancel_finds_what_is_still_on_its_way() {
    on_each("on_its_way", |rt| {
        rt.block_on(async {
            for _ in 0..200 {
                let (reader, _writer) = pipe()?;
                // Begun on the main lane, and so left at a worker's desk.
                let op = reader.start_read(Vec::with_capacity(8));
                let op = op.direct_to(&Scope::current().expect("a scope"));
                let op = op.expect("its body runs");
                on(Pool, async move {
                    op.cancel();
                    op.await.0.expect_err("it was ended early");
                    Ok::<_, Error>(())
                })
                .await?;
            }
            Ok::<_, Error>(())
        })
    });
}

#[test]
fn io_1_a_limit_in_a_limit_does_not_lock_up() {
    on_each("limit_in_limit", |rt| {
        rt.block_on(at_most(
            2,
            scope(async |s| {
                let (reader, writer) = pipe()?;
                let reader = Arc::new(reader);
                let inner = s.spawn(at_most(
                    1,
                    scope(async move |s| {
                        for _ in 0..2 {
                            let reader = reader.clone();
                            s.launch(async move { reader.read([0_u8; 1]).await.0 });
                        }
                        Ok(())
                    }),
                ));
                for _ in 0..20 {
                    yield_now().await?;
                }
                // Its turn comes although a read waits for the inner one.
                writer.write("ab").await.0?;
                inner.await
            }),
        ))
    });
}

#[test]
fn io_1_a_limit_counts_for_what_is_made_outside_it() {
    on_each("made_outside", |rt| {
        rt.block_on(async {
            let mut pipes = Vec::new();
            for _ in 0..8 {
                pipes.push(pipe()?);
            }
            let pipes = Arc::new(pipes);
            let read = Arc::new(AtomicUsize::new(0));
            let begun = Gate::new();
            let inner = {
                let (pipes, read, begun) = (pipes.clone(), read.clone(), begun.clone());
                at_most(
                    8,
                    scope(async move |s| {
                        for n in 0..8 {
                            let (pipes, read) = (pipes.clone(), read.clone());
                            s.launch(async move {
                                pipes[n].0.read([0_u8; 1]).await.0?;
                                read.fetch_add(1, SeqCst);
                                Ok::<_, Error>(())
                            });
                        }
                        begun.open();
                        Ok(())
                    }),
                )
            };
            let task = spawn(at_most(1, inner));
            begun.wait().await;
            // With one under way at once, what is written to the last is not read
            // while the first has nothing. Which is the first nobody knows: of two
            // that can be read at most one is.
            for _ in 0..20 {
                io::nop().await?;
                yield_now().await?;
            }
            pipes[6].1.write("x").await.0?;
            pipes[7].1.write("x").await.0?;
            for _ in 0..20 {
                io::nop().await?;
                yield_now().await?;
            }
            assert!(read.load(SeqCst) < 2, "two were under way at once");
            for (_, writer) in &pipes[..6] {
                writer.write("x").await.0?;
            }
            task.await
        })
    });
}

#[test]
fn io_5_streams_behind_traits_wait_for_no_limit() {
    use futures_util::{AsyncReadExt as _, AsyncWriteExt as _};
    use kinfolk_adapters::Polled;
    use kinfolk_runtime::net::UnixStream;
    on_each("polled_limit", |rt| {
        rt.block_on(async {
            let (here, there) = UnixStream::pair()?;
            let (idle, feed) = pipe()?;
            let holder = at_most(1, async {
                let mut idle = pin!(idle.read([0_u8; 1]));
                // It has the one permit, and keeps it.
                let first = poll_fn(|cx| Poll::Ready(idle.as_mut().poll(cx).is_ready())).await;
                assert!(!first);
                let mut here = Polled::new(here);
                here.write_all(b"hello").await?;
                here.flush().await?;
                let (read, buf) = idle.await;
                read?;
                here.write_all(&buf).await?;
                here.close().await?;
                Ok::<_, Error>(())
            });
            let other = async {
                let mut there = Polled::new(there);
                let mut got = [0_u8; 5];
                there.read_exact(&mut got).await?;
                assert_eq!(&got, b"hello");
                feed.write("!").await.0?;
                let mut rest = Vec::new();
                there.read_to_end(&mut rest).await?;
                assert_eq!(rest, b"!");
                Ok::<_, Error>(())
            };
            let (one, two) = futures_util::future::join(holder, other).await;
            one?;
            two
        })
    });
}

#[test]
fn io_1_told_outside_it_goes_on_in_cleanup() {
    on_each("goes_on", |rt| {
        rt.block_on(async {
            let (reader, writer) = pipe()?;
            let told = Gate::new();
            let task = spawn({
                let told = told.clone();
                async move {
                    let mut read = pin!(reader.read(Vec::with_capacity(8)));
                    poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
                    current_job().expect("a job").cancel("enough");
                    // Told, and the system asked to end it; it may be over in here.
                    let done = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
                    told.open();
                    if done {
                        return Ok(());
                    }
                    kinfolk_core::cleanup(async {
                        let (bytes, buf) = read.await;
                        assert_eq!((bytes?, &*buf), (3, &b"abc"[..]));
                        Ok::<_, Error>(())
                    })
                    .await
                }
            });
            told.wait().await;
            writer.write("abc").await.0?;
            match task.outcome().await? {
                kinfolk_core::Outcome::Failed(error) => Err(error.resume()),
                _ => Ok(()),
            }
        })
    });
}

#[test]
fn shutdown_1_at_the_grace_operations_are_asked_to_end() {
    guarded("at_the_grace", |watched| {
        for workers in 0..3 {
            let rt = Runtime::builder().workers(workers).build();
            let rt = rt.expect("a runtime");
            watched.watch(rt.tree());
            let (begun, ended) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
            let task = rt.scope().task("reader").spawn({
                let (begun, ended) = (begun.clone(), ended.clone());
                async move {
                    let (reader, _writer) = pipe()?;
                    let op = reader.start_read(Vec::with_capacity(8));
                    begun.open();
                    op.await.0.expect_err("nothing was written");
                    ended.store(1, SeqCst);
                    Ok::<_, Error>(())
                }
            });
            let job = task.into_job();
            rt.wait_for(begun.wait()).expect("outside");
            let report = rt.shutdown(Duration::from_millis(20)).expect("a report");
            assert_eq!(ended.load(SeqCst), 1, "{report}");
            assert!(report.stragglers.is_empty(), "{report}");
            drop(job);
        }
    });
}

#[test]
fn io_1_an_offset_out_of_range_is_an_error() {
    on_each("out_of_range", |rt| {
        let path = std::env::temp_dir().join(format!("kinfolk-range-{}", std::process::id()));
        let tried = rt.block_on(async {
            let file = File::create(&path).await?;
            file.write_all_at("kept", 0).await.0?;
            file.write_at("lost", u64::MAX).await.0.expect_err("-1");
            file.write_at("lost", 1 << 63).await.0.expect_err("beyond");
            let (read, buf) = file.read_at(Vec::with_capacity(8), 0).await;
            assert_eq!((read?, &*buf), (4, &b"kept"[..]));
            Ok::<_, Error>(())
        });
        std::fs::remove_file(&path)?;
        tried
    });
}

#[test]
fn src_m08_two_who_reap_at_once() {
    on_each("two_reap", |rt| {
        rt.block_on(async {
            let (first, second) = (pipe()?, pipe()?);
            let ops = [
                first.0.start_read(Vec::with_capacity(8)),
                second.0.start_read(Vec::with_capacity(8)),
            ];
            // Each under a waker of its own.
            let mut both: FuturesUnordered<_> = [reap_next(), reap_next()].into_iter().collect();
            let both = async {
                let mut left = Vec::new();
                while let Some(one) = both.next().await {
                    left.push(one);
                }
                left
            };
            let both = futures_util::future::join(both, async {
                for _ in 0..20 {
                    yield_now().await?;
                }
                first.1.write("a").await.0?;
                second.1.write("b").await.0?;
                Ok::<_, Error>(())
            });
            let (left, written) = both.await;
            written?;
            assert_eq!(left.len(), 2);
            assert_eq!(left.iter().min(), Some(&0), "{left:?}");
            drop(ops);
            Ok::<_, Error>(())
        })
    });
}

#[test]
fn cancel_3_an_interrupt_that_a_dropped_operation_took_is_told_again() {
    on_each("told_again", |rt| {
        rt.block_on(async {
            let (reader, _writer) = pipe()?;
            let me = current_job().expect("a job");
            {
                let mut read = pin!(reader.read(Vec::with_capacity(8)));
                // Once to begin it, once to be told.
                poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
                me.interrupt("look up");
                let done = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
                if done {
                    // It had ended by itself in here: then it has said so.
                    return Ok::<_, Error>(());
                }
            }
            checkpoint().await.expect_err("it was not heard");
            Ok::<_, Error>(())
        })
    });
}

#[test]
fn test_1_the_clock_waits_for_operations() {
    guarded("clock_waits", |watched| {
        for workers in 0..3 {
            let rt = Runtime::builder()
                .workers(workers)
                .clock(Arc::new(VirtualClock::new()))
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            rt.block_on(async {
                let start = kinfolk_core::now();
                for _ in 0..100 {
                    timeout(Duration::from_secs(3600), io::nop()).await?;
                }
                assert_eq!(kinfolk_core::now(), start, "no time has passed");
                Ok::<_, Error>(())
            })
            .expect("in time");
        }
    });
}

#[test]
fn host_1_a_pump_says_what_is_under_way() {
    guarded("pumped", |watched| {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        watched.watch(rt.tree());
        let task = rt.scope().spawn(async {
            let (reader, writer) = pipe()?;
            let read = reader.start_read(Vec::with_capacity(8));
            writer.write("abc").await.0?;
            read.await.0
        });
        let job = task.into_job();
        let pump = || rt.pump(Budget::Turns(1)).expect("outside any job");
        while !job.state().is_terminal() {
            let pumped = pump();
            assert!(
                pumped.more || pumped.under_way > 0 || job.state().is_terminal(),
                "the host would sleep: {pumped:?}"
            );
        }
        // One that waits for somebody else.
        let task = rt.scope().spawn(async {
            let (reader, _writer) = pipe()?;
            reader.read([0_u8; 1]).await.0
        });
        let mut pumped = pump();
        while pumped.more {
            pumped = pump();
        }
        assert_eq!(pumped.under_way, 1, "{pumped:?}");
        let job = task.into_job();
        job.cancel("enough");
        while !job.state().is_terminal() {
            pumped = pump();
        }
        assert_eq!(pumped.under_way, 0, "{pumped:?}");
    });
}

#[test]
fn io_5_the_cancel_that_an_error_comes_from() {
    on_each("told", |rt| {
        rt.block_on(scope(async |s| {
            let (reader, _writer) = pipe()?;
            // Polled, though it is cancelled before.
            let task = s.spawn_atomic(async move {
                let (read, _) = reader.read(vec![0; 8]).await;
                let error = read.expect_err("it was told");
                let told = io::told(&error).expect("a cancel");
                assert_eq!(told.reason().text(), Some("enough"));
                // As others wrap it: in an error of i/o, in one of their own.
                let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
                assert!(io::told(&error).is_some());
                let error = std::io::Error::other(Error::from(error));
                assert!(io::told(&error).is_some());
                Err::<(), _>(error)
            });
            task.cancel("enough");
            assert!(task.outcome().await?.is_cancelled());
            let others: [std::io::Error; 3] = [
                std::io::Error::other("cancelled: enough"),
                std::io::Error::from_raw_os_error(libc::ECANCELED),
                std::io::ErrorKind::Interrupted.into(),
            ];
            for error in others {
                assert!(io::told(&error).is_none(), "{error}");
            }
            Ok(())
        }))
    });
}

#[derive(Debug)]
struct Around(Cancelled);

impl std::fmt::Display for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("around it")
    }
}

impl std::error::Error for Around {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// An error of i/o and one of ours agree on what comes from a cancel: the kind of one
/// of ours decides, also in the other.
#[test]
fn io_5_what_comes_from_a_cancel_is_asked_in_one_way() {
    guarded("one_walk", |watched| {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        watched.watch(rt.tree());
        let ran = rt.block_on(async {
            let mut old = None;
            let late = timeout(Duration::ZERO, async {
                old = checkpoint().await.err();
            });
            drop(late.await);
            let old = old.expect("it was told");
            // Its own, wherever it stands.
            for ours in [
                Error::from(old.clone()),
                Error::from_boxed(Box::new(Around(old.clone()))),
                Error::from(anyhow::Error::new(old.clone()).context("while reading")),
                Error::from(anyhow::anyhow!("no page").context(old.clone())),
            ] {
                assert!(ours.is_cancelled(), "{ours:?}");
                let error = std::io::Error::other(ours);
                assert!(io::told(&error).is_some(), "{error:?}");
                assert!(cancelled_in(&error).is_some());
                assert!(Error::from(error).is_cancelled());
            }
            // Somebody else's: whoever returns it has failed.
            let returns = async move { Err::<(), _>(Error::from_boxed(Box::new(Around(old)))) };
            let alone = Scope::build().supervisor();
            let failed = alone.run(async |s| Ok(s.spawn(returns).await)).await?;
            let failed = failed.expect_err("it is not its own");
            assert_eq!(failed.kind(), ErrorKind::Failed);
            let error = std::io::Error::other(failed);
            assert!(io::told(&error).is_none(), "{error:?}");
            assert!(cancelled_in(&error).is_none());
            assert_eq!(Error::from(error).kind(), ErrorKind::Failed);
            Ok::<_, Error>(())
        });
        ran.expect("errors are judged");
    });
}

/// All threads for blocking calls are taken by calls that wait for a file.
#[test]
fn io_5_blocking_calls_do_not_keep_files_waiting() {
    guarded("files_have_threads", |watched| {
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            let rt = Runtime::builder()
                .workers(1)
                .blocking_threads(2)
                .io(driver)
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            let all_taken = rt.tree().clone();
            let read = rt.block_on(async {
                let mut ends = Vec::new();
                let calls: Vec<_> = (0..3)
                    .map(|_| {
                        let (end, wait) = std::sync::mpsc::channel::<usize>();
                        ends.push(end);
                        spawn(async move { blocking(move |_| wait.recv()).await })
                    })
                    .collect();
                // The third waits for a thread.
                while all_taken.gauges().queue("blocking") != Some(1) {
                    yield_now().await?;
                }
                let file = File::open("/proc/self/status").await?;
                let read = file.read_at(Vec::with_capacity(16), 0).await.0?;
                for end in ends {
                    end.send(read).expect("it waits");
                }
                for call in calls {
                    assert_eq!(call.await?.expect("sent"), 16);
                }
                Ok::<_, Error>(read)
            });
            assert_eq!(read.expect("a file"), 16);
        }
    });
}
