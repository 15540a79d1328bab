//! An echo server: one job for each connection, a limit for those who are
//! silent, and an end at which everybody hears a good-bye.

use std::time::Duration;

use kinfolk::net::{Shutdown, TcpListener, TcpStream};
use kinfolk::{Error, ErrorKind, Result, Scope, Task, cleanup, scope, timeout};

/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_millis(100);

/// Takes connections until it is cancelled. Then they are too, and it is left
/// when the last of them has ended.
async fn serve(listener: TcpListener) -> Result<()> {
    // A supervisor: the failure of one connection is not that of the others.
    let run = Scope::build().supervisor().run(async |s| -> Result<()> {
        loop {
            let (stream, peer) = listener.accept().await?;
            s.task(peer.to_string()).launch(connection(stream));
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
    cleanup(async {
        stream.write_all(words).await.0?;
        stream.shutdown(Shutdown::Write).await?;
        Ok::<_, Error>(())
    })
    .await
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
        stream.write_all(buf).await.0?;
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

#[test]
fn everybody_is_told_why_it_ends() {
    let rt = kinfolk::Runtime::new().expect("a runtime");
    let said = rt.block_on(run()).expect("an echo");
    let (silent, closed) = ("hello\nare you there?\n", "hello\nwe are closing\n");
    assert_eq!(said, ["hello\n", silent, closed]);
}

#[test]
fn it_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(run);
    assert_eq!(went.forced, 0, "every wait hears it");
    assert!(went.points > 20, "{went:?}");
}
