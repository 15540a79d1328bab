//! An echo server: one job for each connection, a limit for those who are silent
//! or do not listen, and an end at which everybody hears a good-bye.

use std::time::Duration;

use kinfolk::io::told;
use kinfolk::net::{Shutdown, TcpListener, TcpStream};
use kinfolk::{Error, ErrorKind, Result, Scope, Task, cleanup, scope, sleep, timeout};

/// How long a connection may be silent, or not take what we send.
const SILENCE: Duration = Duration::from_millis(100);

/// How long we wait if a connection cannot be taken.
const BREATH: Duration = Duration::from_millis(10);

/// Takes connections until it is cancelled. Then they are too, and it is left
/// when the last of them has ended.
async fn serve(listener: TcpListener) -> Result<()> {
    // A supervisor: the failure of one connection is not that of the others. The
    // listener is the loop's, and gone with it: nobody connects to a server that ends.
    let run = Scope::build()
        .supervisor()
        .run(async move |s| -> Result<()> {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        s.task(peer.to_string()).launch(connection(stream));
                    }
                    Err(error) if told(&error).is_some() => return Err(error.into()),
                    // Too many open files, or the client has changed its mind.
                    Err(_) => sleep(BREATH).await?,
                }
            }
        });
    run.await
}

/// One connection. If it is the server that ends it, it says why.
async fn connection(stream: TcpStream) -> Result<()> {
    let end = echo(&stream).await;
    let words = match &end {
        Err(error) if error.is_cancelled() => "we are closing\n",
        Err(error) if error.kind() == ErrorKind::TimedOut => "are you there?\n",
        _ => return end,
    };
    // In code that has been told, i/o works again in here, for a while.
    let bye = async {
        stream.write_all(words).await.0?;
        stream.shutdown(Shutdown::Write).await
    };
    match cleanup(timeout(SILENCE, bye)).await {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()), // it does not listen
        said => said,
    }
}

async fn echo(stream: &TcpStream) -> Result<()> {
    loop {
        let read = timeout(SILENCE, async {
            // The system gets the buffer, and gives it back.
            let (read, buf) = stream.read(Vec::with_capacity(1024)).await;
            read?;
            Ok::<_, Error>(buf)
        });
        let buf = read.await?;
        if buf.is_empty() {
            return Ok(());
        }
        timeout(SILENCE, async { stream.write_all(buf).await.0 }).await?;
    }
}

/// All that the server has to say after it got these words.
async fn ask(stream: TcpStream, words: &'static str, then: Then<'_>) -> Result<String> {
    stream.write_all(words).await.0?;
    let (read, mut all) = stream.read_exact(vec![0; words.len()]).await;
    read?;
    match then {
        Then::Leave => stream.shutdown(Shutdown::Write).await?,
        Then::BeSilent => {}
        Then::Close(server) => {
            server.cancel("closing time");
        }
    }
    loop {
        let (read, more) = stream.read(Vec::with_capacity(1024)).await;
        if read? == 0 {
            return String::from_utf8(all).map_err(Error::from);
        }
        all.extend(more);
    }
}

/// What a client does when it has its echo.
enum Then<'a> {
    Leave,
    BeSilent,
    Close(&'a Task<()>),
}

async fn run() -> Result<Vec<String>> {
    scope(async |s| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = s.task("server").spawn(serve(listener));
        let mut said = Vec::new();
        for then in [Then::Leave, Then::BeSilent, Then::Close(&server)] {
            let stream = TcpStream::connect(addr).await?;
            said.push(ask(stream, "hello\n", then).await?);
        }
        assert!(server.outcome().await?.is_cancelled());
        Ok(said)
    })
    .await
}

#[kinfolk::main]
async fn main() -> Result<()> {
    for said in run().await? {
        println!("{said}");
    }
    Ok(())
}

#[cfg(test)]
use kinfolk::testkit::{
    Sim,
    io::{Fault, OpKind, SimIo},
};

/// On real sockets, in virtual time: a busy machine must not look like a silent client.
#[kinfolk::test(flavor = "native")]
async fn everybody_is_told_why_it_ends() -> Result<()> {
    let said = run().await?;
    let (silent, closed) = ("hello\nare you there?\n", "hello\nwe are closing\n");
    assert_eq!(said, ["hello\n", silent, closed]);
    Ok(())
}

#[test]
fn it_can_be_stopped_anywhere() {
    // A client that is cut off is a failure of its connection, which is for the
    // failure hook.
    let went = kinfolk::testkit::CancelEverywhere::new()
        .allow_failures()
        .run(run);
    assert_eq!(went.forced, 0, "every wait hears it");
    assert!(went.points > 20, "{went:?}");
}

#[test]
fn it_outlives_a_lack_of_open_files() {
    let weather = SimIo::new().fault(OpKind::Accept, 2, Fault::TooManyFiles);
    let mut sim = Sim::builder(7).io(weather).build();
    assert_eq!(sim.run(run()).expect("an echo").len(), 3);
    sim.finish();
}

/// A client that takes nothing, while it is served and when the server ends.
#[test]
fn who_does_not_listen_is_not_waited_for() {
    for closes in [false, true] {
        let mut sim = Sim::seeded(7);
        let ran = sim.run(scope(async move |s| {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let addr = listener.local_addr()?;
            let server = s.task("server").spawn(serve(listener));
            let deaf = TcpStream::connect(addr).await?;
            // Until there is no more room on the way.
            let talk = async { while deaf.write_all(vec![0; 1024]).await.0.is_ok() {} };
            timeout(SILENCE / 2, talk).await?;
            if closes {
                server.cancel("closing time");
                sleep(SILENCE / 2).await?; // the good-bye is under way
                assert!(!server.is_ended());
                let late = TcpStream::connect(addr).await;
                assert!(late.is_err(), "nobody listens any more");
            }
            sleep(SILENCE * 2).await?;
            assert!(deaf.write_all("hello").await.0.is_err(), "it is gone");
            server.cancel("closing time");
            assert!(server.outcome().await?.is_cancelled());
            Ok(())
        }));
        ran.expect("a server");
        sim.finish();
    }
}
