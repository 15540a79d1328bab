//! TLS by rustls on our streams: a job for each connection, limits for the handshake
//! and for silence, and an end that cannot be mistaken for a truncated stream.

use std::io::ErrorKind as IoKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kinfolk::io::told;
use kinfolk::net::{Polled, TcpListener, TcpStream};
use kinfolk::{Error, ErrorKind, OrFail, Result, Scope, cleanup, scope, sleep, timeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(1);

/// How long a connection may be silent, or not take what we send.
const IDLE: Duration = Duration::from_secs(2);

/// How long we wait if a connection cannot be taken.
const BREATH: Duration = Duration::from_millis(10);

/// Takes connections until it is cancelled, and is left when the last of them
/// has ended.
async fn serve(listener: TcpListener, tls: TlsAcceptor) -> Result<()> {
    // A supervisor: the failure of one connection is not that of the others. The
    // listener is the loop's, and gone with it: nobody connects to a server that ends.
    let run = Scope::build()
        .supervisor()
        .run(async move |s| -> Result<()> {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let connection = connection(stream, tls.clone());
                        s.task(peer.to_string()).launch(connection);
                    }
                    Err(error) if told(&error).is_some() => return Err(error.into()),
                    // Too many open files, or the client has changed its mind.
                    Err(_) => sleep(BREATH).await?,
                }
            }
        });
    run.await
}

/// One connection: the handshake in time, then an echo.
async fn connection(stream: TcpStream, tls: TlsAcceptor) -> Result<()> {
    let accepted = timeout(HANDSHAKE, tls.accept(Polled::new(stream))).await;
    let mut stream = match accepted {
        Err(late) if late.kind() == ErrorKind::TimedOut => return Ok(()), // nobody's failure
        other => other?,
    };
    let end = echo(&mut stream).await;
    // Told, late or neither: what is left goes out, and a `close_notify` behind it.
    let closed = cleanup(timeout(IDLE, stream.shutdown())).await;
    match end.and(closed) {
        Err(late) if late.kind() == ErrorKind::TimedOut => Ok(()),
        ended => ended,
    }
}

async fn echo(stream: &mut server::TlsStream<Polled<TcpStream>>) -> Result<()> {
    let mut buf = [0; 1024];
    loop {
        // A point: below rustls there is a stream of ours.
        let bytes = timeout(IDLE, stream.read(&mut buf)).await?;
        if bytes == 0 {
            return Ok(());
        }
        timeout(IDLE, async {
            stream.write_all(&buf[..bytes]).await?;
            stream.flush().await
        })
        .await?;
    }
}

/// How a connection has ended, as the client sees it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The server has said so.
    Clean,
    /// It may have been truncated by an attacker.
    Cut,
}

type Encrypted = client::TlsStream<Polled<TcpStream>>;

async fn connect(addr: SocketAddr, tls: &TlsConnector) -> Result<Encrypted> {
    let stream = Polled::new(TcpStream::connect(addr).await?);
    let name = "localhost".try_into().or_fail()?;
    Ok(tls.connect(name, stream).await?)
}

async fn hello(stream: &mut Encrypted) -> Result<()> {
    stream.write_all(b"hello").await?;
    stream.flush().await?;
    let mut buf = [0; 5];
    stream.read_exact(&mut buf).await?;
    assert_eq!(&buf, b"hello");
    Ok(())
}

async fn end(stream: &mut (impl AsyncReadExt + Unpin)) -> Result<End> {
    match stream.read(&mut [0]).await {
        Ok(0) => Ok(End::Clean),
        Ok(_) => Err(Error::msg("more than was asked for")),
        Err(error) if error.kind() == IoKind::UnexpectedEof => Ok(End::Cut),
        Err(error) => Err(error.into()),
    }
}

/// A fresh key and certificate, for both sides.
fn keys() -> Result<(TlsAcceptor, TlsConnector)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).or_fail()?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut known = RootCertStore::empty();
    known.add(certificate.clone()).or_fail()?;
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .or_fail()?;
    let client = ClientConfig::builder()
        .with_root_certificates(known)
        .with_no_client_auth();
    Ok((Arc::new(server).into(), Arc::new(client).into()))
}

/// Three clients: one that leaves, one that never says hello, and one that is
/// there when the server stops.
async fn run(server_tls: TlsAcceptor, tls: TlsConnector) -> Result<Vec<End>> {
    scope(async |s| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = s.task("server").spawn(serve(listener, server_tls));

        let mut leaves = connect(addr, &tls).await?;
        hello(&mut leaves).await?;
        leaves.shutdown().await?;
        let left = end(&mut leaves).await?;

        let silent = TcpStream::connect(addr).await?;
        let (read, _) = silent.read([0]).await;
        assert_eq!(read?, 0, "its time is up");

        let mut stays = connect(addr, &tls).await?;
        hello(&mut stays).await?;
        server.cancel("closing time");
        let stopped = end(&mut stays).await?;
        assert!(server.outcome().await?.is_cancelled());
        Ok(vec![left, stopped])
    })
    .await
}

#[kinfolk::main]
async fn main() -> Result<()> {
    let (server, client) = keys()?;
    let ends = run(server, client).await?;
    println!("one leaves: {:?}", ends[0]);
    println!("the server stops: {:?}", ends[1]);
    Ok(())
}

#[cfg(test)]
use kinfolk::testkit::{
    Sim,
    io::{Fault, OpKind, SimIo},
};

/// On real sockets, in virtual time: a busy machine must not look like a slow client.
#[kinfolk::test(flavor = "native")]
async fn nobody_is_cut() -> Result<()> {
    let (server, client) = keys()?;
    let ends = run(server, client).await?;
    assert_eq!(ends, [End::Clean, End::Clean]);
    Ok(())
}

/// The difference, which the client can tell.
#[test]
fn a_server_that_only_closes_cuts() {
    let (server, client) = keys().expect("keys");
    let rt = kinfolk::Runtime::new().expect("a runtime");
    let end = rt.block_on(scope(async |s| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        s.launch(async move {
            let (stream, _) = listener.accept().await?;
            drop(server.accept(Polled::new(stream)).await?);
            Ok::<_, Error>(())
        });
        end(&mut connect(addr, &client).await?).await
    }));
    assert_eq!(end.expect("an end"), End::Cut);
}

#[test]
fn it_can_be_stopped_anywhere() {
    let (server, client) = keys().expect("keys");
    // A client that is cut off is a failure of its connection, which is for the
    // failure hook.
    let went = kinfolk::testkit::CancelEverywhere::new()
        .most(40)
        .seeds(1)
        .allow_failures()
        .run(move || run(server.clone(), client.clone()));
    assert_eq!(went.forced, 0, "every wait hears it");
    assert!(went.points > 20, "{went:?}");
}

#[test]
fn it_outlives_a_lack_of_open_files() {
    let (server, client) = keys().expect("keys");
    let weather = SimIo::new().fault(OpKind::Accept, 2, Fault::TooManyFiles);
    let mut sim = Sim::builder(7).io(weather).build();
    let ends = sim.run(run(server, client)).expect("a server");
    assert_eq!(ends, [End::Clean, End::Clean]);
    sim.finish();
}

/// One says nothing after the handshake, the other takes nothing.
#[test]
fn who_says_or_takes_nothing_is_not_kept() {
    let (server, client) = keys().expect("keys");
    let mut sim = Sim::seeded(7);
    let ran = sim.run(scope(async move |s| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = s.spawn(serve(listener, server));
        let mut silent = connect(addr, &client).await?;
        let left = timeout(IDLE * 2, end(&mut silent)).await?;
        assert_eq!(left, End::Clean);
        let mut deaf = connect(addr, &client).await?;
        let talk = timeout(IDLE * 4, async {
            while deaf.write_all(&[0; 1024]).await.is_ok() {}
        });
        talk.await?; // it is gone
        server.cancel("closing time");
        assert!(server.outcome().await?.is_cancelled());
        Ok(())
    }));
    ran.expect("a server");
    sim.finish();
}
