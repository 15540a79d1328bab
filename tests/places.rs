//! The place in the code that snapshots, reports and `cancel_everywhere` name for a wait inside
//! `fs` and `net` is the line of the program, not one of the library.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kinfolk_core::{Error, Result, spawn};
use kinfolk_runtime::fs::{self, File, OpenOptions};
use kinfolk_runtime::io::pipe;
use kinfolk_runtime::net::{TcpListener, TcpStream, UdpSocket, lookup_host};
use kinfolk_testkit::io::SimIo;
use kinfolk_testkit::{Sim, cancel_everywhere};

/// Every wait that a job of `body` is seen in is one at a line of this file.
fn waits_here<B>(what: &str, body: B)
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    let longest = Duration::from_nanos(20);
    let mut sim = Sim::builder(3).io(SimIo::new().late(1.0, longest)).build();
    sim.io().put("/dir/file", [7; 64]);
    let task = sim.root().spawn(body);
    let mut seen = BTreeSet::new();
    while !task.is_ended() {
        for job in sim.snapshot().nodes() {
            if let Some((kind, Some(site), _)) = job.waits_on {
                seen.insert((site.file(), site.line(), kind.to_string()));
            }
        }
        if !sim.step() {
            // An operation takes longer than a nanosecond: each is seen.
            let next = sim.next_deadline().map(|at| at - sim.now());
            sim.advance(next.unwrap_or(Duration::from_nanos(1)));
        }
    }
    sim.run(task)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    sim.finish();
    assert!(!seen.is_empty(), "{what} was seen in no wait");
    let elsewhere: Vec<_> = seen.iter().filter(|(file, ..)| *file != file!()).collect();
    assert!(elsewhere.is_empty(), "{what} waits at {elsewhere:?}");
}

#[test]
fn see_1_waits_of_files_are_named_by_the_line_of_the_program() {
    waits_here("read", async { Ok(fs::read("/dir/file").await.map(drop)?) });
    waits_here("write", async { Ok(fs::write("/new", [1; 9]).await.0?) });
    waits_here("copy", async {
        assert_eq!(fs::copy("/dir/file", "/copy").await?, 64);
        Ok(())
    });
    waits_here("create_dir_all", async {
        Ok(fs::create_dir_all("/a/b/c").await?)
    });
    waits_here("create_dir_all of what is there", async {
        Ok(fs::create_dir_all("/dir").await?)
    });
    waits_here("read_dir", async {
        assert_eq!(fs::read_dir("/dir").await?.len(), 1);
        Ok(())
    });
    waits_here("the ways of a file", async {
        let file = OpenOptions::new().read(true).write(true);
        let file = file.open("/dir/file").await?;
        file.read_exact_at([0; 8], 0).await.0?;
        file.write_all_at([1; 8], 0).await.0?;
        file.write_then_sync([1; 8], 0).await.0?;
        file.sync_range(0..8).await?;
        file.metadata().await?;
        file.set_len(3).await?;
        fs::metadata("/dir/file").await?;
        file.close().await?;
        Ok(())
    });
}

#[test]
fn see_1_waits_of_sockets_and_pipes_are_named_by_the_line_of_the_program() {
    waits_here("a connection", async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = spawn(async move {
            let (stream, _) = listener.accept().await?;
            let (read, message) = stream.read_exact(vec![0; 8]).await;
            read?;
            stream.write_all(message).await.0?;
            Ok::<_, Error>(())
        });
        let client = TcpStream::connect(addr).await?;
        client.write_all([7; 8]).await.0?;
        client.read_exact([0; 8]).await.0?;
        server.await
    });
    waits_here("a pipe", async {
        let (reader, writer) = pipe()?;
        let read = spawn(async move { Ok::<_, Error>(reader.read_to_end(Vec::new()).await.0?) });
        writer.write_all("hello").await.0?;
        drop(writer);
        assert_eq!(read.await?, 5);
        Ok(())
    });
    waits_here("a socket for messages", async {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        one.connect(other.local_addr()?).await?;
        one.send("hello").await.0?;
        other.recv_from([0; 8]).await.0?;
        Ok(())
    });
    waits_here("the name of a host", async {
        assert!(!lookup_host("localhost:80").await?.is_empty());
        Ok(())
    });
    waits_here("an address in use", async {
        let first = TcpListener::bind("127.0.0.1:80").await?;
        TcpListener::bind("127.0.0.1:80").await.expect_err("in use");
        drop(first);
        Ok(())
    });
}

/// test-3: the point of a `read_exact` that is stopped is the line that awaits it.
#[cfg(debug_assertions)]
#[test]
fn test_3_a_point_inside_a_function_of_ours_is_named_by_the_line_of_the_program() {
    const LINE: u32 = line!() + 4;
    let run = || {
        cancel_everywhere(|| async {
            let file = File::create("/a").await?;
            let (written, _) = file.write_all_at("four", 0).await;
            if written.is_err() {
                panic!("a write was stopped");
            }
            file.close().await?;
            Ok::<_, Error>(())
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a write is stopped");
    let words = panic.downcast_ref::<String>().expect("words");
    assert!(words.contains(&format!("at {}:{LINE}", file!())), "{words}");
}
