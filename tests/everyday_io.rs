//! Everyday i/o stopped at every point, and standard input of a simulation.

use std::time::Duration;

use kinfolk_core::{Error, cleanup, now, scope, sleep, spawn};
use kinfolk_runtime::io::{self, BufReader, BufWriter, pipe};
use kinfolk_runtime::net::UnixStream;
use kinfolk_testkit::{Sim, cancel_everywhere};

const MS: Duration = Duration::from_millis(1);

/// Wherever the reader is stopped: its clean-up reads the rest, and every line is whole.
#[test]
fn io_7_lines_stopped_everywhere_stay_whole() {
    let went = cancel_everywhere(|| {
        scope(async |s| {
            let (reader, writer) = pipe()?;
            s.launch(async move {
                let sent = cleanup(async {
                    for part in ["fi", "rst\nsec", "ond\n"] {
                        writer.write_all(part).await.0?;
                        sleep(MS).await?;
                    }
                    Ok::<_, Error>(())
                });
                sent.await
            });
            let mut lines = BufReader::with_capacity(4, reader).lines();
            let mut seen = Vec::new();
            let told = loop {
                match lines.next().await {
                    Some(Ok(line)) => seen.push(line),
                    Some(Err(told)) => break Some(told),
                    None => break None,
                }
            };
            if told.is_some() {
                cleanup(async {
                    while let Some(line) = lines.next().await {
                        seen.push(line?);
                    }
                    Ok::<_, Error>(())
                })
                .await?;
            }
            // A writer that was stopped before it began has written nothing.
            assert!(seen.is_empty() || seen == ["first", "second"], "{seen:?}");
            match told {
                Some(told) => Err(told.into()),
                None => Ok(()),
            }
        })
    });
    assert!(went.points > 3, "{went:?}");
}

/// What a stopped writer has taken is written by its clean-up, once.
#[test]
fn io_7_a_writer_stopped_everywhere_writes_what_it_took() {
    let went = cancel_everywhere(|| {
        scope(async |_s| {
            let (reader, writer) = pipe()?;
            let mut out = BufWriter::with_capacity(8, writer);
            let mut taken = Vec::new();
            let told = async {
                for part in ["one ", "two ", "three ", "four "] {
                    out.write_all(part).await?;
                    taken.extend_from_slice(part.as_bytes());
                }
                out.flush().await
            }
            .await;
            assert_eq!(out.written() as usize + out.unwritten(), taken.len());
            cleanup(async {
                out.flush().await?;
                assert_eq!((out.written() as usize, out.unwritten()), (taken.len(), 0));
                drop(out);
                let all = BufReader::new(reader).read_to_end().await?;
                assert_eq!(all, taken);
                Ok::<_, Error>(())
            })
            .await?;
            Ok(told?)
        })
    });
    assert!(went.points > 4, "{went:?}");
}

/// A stopped copy goes on in the clean-up, from where it was.
#[test]
fn io_7_a_copy_stopped_everywhere_goes_on() {
    let went = cancel_everywhere(|| {
        scope(async |_s| {
            let (from, source) = pipe()?;
            let (target, to) = pipe()?;
            cleanup(async { source.write_all("some bytes").await.0 }).await?;
            drop(source);
            let mut copy = io::copy(from, to);
            let copied = (&mut copy).await;
            assert!(copy.written() <= copy.read());
            if copied.is_err() {
                assert_eq!(cleanup(&mut copy).await?, 10);
            }
            drop(copy);
            let all = cleanup(async { BufReader::new(target).read_to_end().await }).await?;
            assert_eq!(all, b"some bytes");
            copied?;
            Ok(())
        })
    });
    assert!(went.points >= 3, "{went:?}");
}

/// The same in both directions, with a half-close in each.
#[test]
fn io_7_a_copy_in_both_directions_stopped_everywhere_goes_on() {
    let went = cancel_everywhere(|| {
        scope(async |_s| {
            let (client, near) = UnixStream::pair()?;
            let (far, server) = UnixStream::pair()?;
            cleanup(async {
                let mut up = BufWriter::new(&client);
                up.write_all("up").await?;
                up.shutdown().await?;
                let mut down = BufWriter::new(&server);
                down.write_all("down").await?;
                down.shutdown().await
            })
            .await?;
            let mut copy = io::copy_bidirectional(near, far);
            let copied = (&mut copy).await;
            if copied.is_err() {
                assert_eq!(cleanup(&mut copy).await?, (2, 4));
            }
            assert_eq!((copy.read(), copy.written()), ((2, 4), (2, 4)));
            cleanup(async {
                assert_eq!(BufReader::new(&client).read_to_end().await?, b"down");
                assert_eq!(BufReader::new(&server).read_to_end().await?, b"up");
                Ok::<_, Error>(())
            })
            .await?;
            copied?;
            Ok(())
        })
    });
    assert!(went.points >= 3, "{went:?}");
}

/// What a test types is read; a told wait leaves its part of a line to the next.
#[test]
fn io_7_a_simulation_has_a_standard_input() {
    for seed in 0..20 {
        let mut sim = Sim::seeded(seed);
        let keyboard = sim.io();
        sim.run(async move {
            let task = spawn(async {
                let mut lines = io::stdin().lines();
                assert_eq!(lines.next().await.transpose()?.as_deref(), Some("hello"));
                lines.next().await.transpose()?;
                Ok::<_, Error>(())
            });
            keyboard.type_in("hel");
            sleep(MS).await?;
            keyboard.type_in("lo\nwo");
            sleep(MS).await?;
            task.cancel("enough");
            assert!(task.outcome().await?.is_cancelled());
            keyboard.type_in("rld");
            keyboard.end_of_input();
            let stdin = io::stdin();
            assert_eq!(stdin.read_line().await?.as_deref(), Some("world"));
            assert_eq!(stdin.read_line().await?, None);
            Ok::<_, Error>(())
        })
        .expect("all was read");
        sim.finish();
    }
}

#[test]
fn test_2_a_simulation_says_the_time() {
    let mut sim = Sim::seeded(1);
    let began = sim.now();
    assert_eq!(began, sim.start());
    let inside = sim
        .run(async {
            sleep(MS).await?;
            Ok::<_, Error>(now())
        })
        .expect("it slept");
    assert_eq!((sim.now(), sim.now() - began), (inside, MS));
}

/// Streams of the program's own whose operations are ready each time, and are no points.
mod always_ready {
    use kinfolk_runtime::io::{ReadStream, Slice, StreamEnd, StreamRead, StreamWrite, WriteStream};

    pub(super) struct Always;

    impl ReadStream for Always {
        fn read_into(&self, mut buf: Vec<u8>) -> StreamRead {
            buf.push(b'x');
            StreamRead::new(async move { (Ok(1), buf) })
        }
    }

    impl WriteStream for Always {
        fn write_from(&self, buf: Slice<Vec<u8>>) -> StreamWrite {
            StreamWrite::new(async move { (Ok(1), buf) })
        }

        fn end(&self) -> StreamEnd {
            StreamEnd::nothing()
        }
    }
}

/// Copies and reads of streams that are always ready are points all the same, and let others
/// have their turns.
#[test]
fn io_7_streams_that_are_always_ready_are_told() {
    use always_ready::Always;
    use kinfolk_core::{Result, Scope, cancel_current, yield_now};

    async fn told(endless: impl Future<Output = std::io::Result<()>> + Send) -> Result<()> {
        scope(async |s: Scope| {
            // It has its turns meanwhile, and ends the scope in the fifth.
            let stops = s.clone();
            s.launch(async move {
                for _ in 0..5 {
                    yield_now().await?;
                }
                stops.cancel("enough");
                Ok::<_, Error>(())
            });
            let ended = endless.await.expect_err("it has no end");
            assert!(io::told(&ended).is_some(), "{ended}");
            Ok(())
        })
        .await
    }
    for seed in 0..20 {
        let mut sim = Sim::seeded(seed);
        sim.run(async {
            told(async { io::copy(Always, Always).await.map(drop) }).await?;
            told(async { io::copy_bidirectional(Always, Always).await.map(drop) }).await?;
            told(async { BufReader::new(Always).read_until(b'y').await.map(drop) }).await?;
            told(async { BufReader::new(Always).read_to_end().await.map(drop) }).await?;
            // A flush of what was read before.
            let task = spawn(async {
                let mut copy = io::copy(Always, Always);
                cancel_current("enough");
                let told = (&mut copy).await.expect_err("told at entry");
                assert!(io::told(&told).is_some());
                assert_eq!((copy.read(), copy.written()), (0, 0));
                Ok::<_, Error>(())
            });
            drop(task.outcome().await?);
            Ok::<_, Error>(())
        })
        .expect("all of them were told");
        sim.finish();
    }
}
