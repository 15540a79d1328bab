//! A server that is stopped while its connections wait: on sockets of this
//! machine, and on a network in memory.

use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinfolk::net::{Shutdown, TcpListener, TcpStream};
use kinfolk::testkit::Sim;
use kinfolk::testkit::io::{Audit, OpenFiles, SimIo};
use kinfolk::{Result, Runtime, Scope, cleanup, scope, sleep};

/// What is echoed at once; a client whose batch is not full waits.
const BATCH: usize = 48;

/// Of a buffer.
const ROOM: usize = 64;

const LINE: &[u8] = b"sixteen bytes..\n";

/// The server's buffers, and what it has counted.
#[derive(Default)]
struct Desk {
    buffers: Mutex<Vec<Vec<u8>>>,
    lent: AtomicUsize,
    read: AtomicUsize,
    flushed: AtomicUsize,
}

impl Desk {
    fn lend(&self) -> Vec<u8> {
        self.lent.fetch_add(1, SeqCst);
        Vec::with_capacity(ROOM)
    }

    fn take_back(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.push(buffer);
    }

    /// How many buffers were lent, and how many came back as they were.
    fn lent_and_back(&self) -> (usize, usize) {
        let buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let back = buffers.iter().filter(|buffer| buffer.capacity() == ROOM);
        (self.lent.load(SeqCst), back.count())
    }

    fn has_all_back(&self) -> bool {
        let (lent, back) = self.lent_and_back();
        lent == back
    }
}

async fn serve(listener: TcpListener, desk: Arc<Desk>) -> Result<()> {
    let connections = Scope::named("connections").supervisor();
    let run = connections.run(async |s| -> Result<()> {
        loop {
            let (stream, peer) = listener.accept().await?;
            let connection = connection(stream, desk.clone());
            s.task(peer.to_string()).launch(connection);
        }
    });
    run.await
}

/// Whatever ends it: what was read is sent, and then the end.
async fn connection(stream: TcpStream, desk: Arc<Desk>) -> Result<()> {
    let (mut buffer, mut batch) = (desk.lend(), Vec::new());
    let told = echo(&stream, &mut buffer, &mut batch, &desk).await;
    desk.take_back(buffer);
    cleanup(async {
        desk.flushed.fetch_add(batch.len(), SeqCst);
        stream.write_all(batch).await.0?;
        stream.shutdown(Shutdown::Write).await
    })
    .await?;
    told
}

async fn echo(
    stream: &TcpStream,
    buffer: &mut Vec<u8>,
    batch: &mut Vec<u8>,
    desk: &Desk,
) -> Result<()> {
    loop {
        let (read, back) = stream.read(take(buffer)).await; // with the system meanwhile
        *buffer = back;
        if read? == 0 {
            return Ok(());
        }
        batch.extend_from_slice(buffer);
        desk.read.fetch_add(buffer.len(), SeqCst);
        while batch.len() >= BATCH {
            let (sent, back) = stream.write(take(batch)).await;
            *batch = back;
            batch.drain(..sent?);
        }
    }
}

/// Sends some lines, and waits for as many bytes as come back.
async fn client(addr: std::net::SocketAddr, lines: usize) -> Result<usize> {
    let stream = TcpStream::connect(addr).await?;
    stream.write_all(LINE.repeat(lines)).await.0?;
    let (mut echoed, mut buffer) = (0, Vec::with_capacity(256));
    loop {
        let (read, back) = stream.read(buffer).await;
        match read? {
            0 => return Ok(echoed),
            bytes => echoed += bytes,
        }
        buffer = back;
    }
}

/// What went over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    sent: usize,
    echoed: usize,
    flushed: usize,
}

/// Lets clients loose on the server, and stops it when it has read what they sent.
async fn session(clients: usize, desk: Arc<Desk>) -> Result<Traffic> {
    scope(async |s| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = s.task("server").spawn(serve(listener, desk.clone()));
        let lines = (0..clients).map(|n| 1 + n % 7);
        let sent = lines.clone().sum::<usize>() * LINE.len();
        let clients: Vec<_> = lines.map(|lines| s.spawn(client(addr, lines))).collect();
        while desk.read.load(SeqCst) < sent {
            sleep(Duration::from_millis(1)).await?;
        }
        server.cancel("Ctrl-C");
        let mut echoed = 0;
        for client in clients {
            echoed += client.await?;
        }
        assert!(server.outcome().await?.is_cancelled());
        let flushed = desk.flushed.load(SeqCst);
        Ok(Traffic {
            sent,
            echoed,
            flushed,
        })
    })
    .await
}

/// On this machine's sockets, with everybody counted.
pub fn on_this_machine() -> Result<()> {
    const CLIENTS: usize = 200;
    let (files, audit, desk) = (OpenFiles::now(), Audit::new(), Arc::new(Desk::default()));
    let watch = audit.clone();
    let rt = Runtime::builder()
        .workers(2)
        .wrap_io(move |driver| watch.watch(driver))
        .build()?;
    let went = rt.block_on(session(CLIENTS, desk.clone()))?;
    let driver = rt.io_driver().unwrap_or("no driver");
    println!("{CLIENTS} connections, {driver}; each waits with its buffer in the system's hands.");
    drop(rt);
    audit.check();
    println!("Ctrl-C:");
    let (lent, back) = desk.lent_and_back();
    println!("  buffers lent, and back     {lent}, {back}");
    println!(
        "  bytes read, and echoed     {}, {}",
        went.sent, went.echoed
    );
    println!("    of them in clean-up      {}", went.flushed);
    let (begun, over) = (audit.submitted(), audit.completed());
    println!("  operations begun, over     {begun}, {over}");
    println!("    of them ended early      {}", audit.cancels());
    let (before, after) = (files.len(), OpenFiles::now().len());
    println!("  open files before, after   {before}, {after}");
    Ok(())
}

/// The same server, where everything comes from a seed: order, short reads,
/// operations that are late, cancels that come too late.
pub fn in_memory(seed: u64) -> Result<Duration> {
    let mut sim = Sim::builder(seed).io(SimIo::rough()).build();
    let desk = Arc::new(Desk::default());
    let went = sim.run(session(7, desk.clone()))?;
    assert!(desk.has_all_back());
    assert_eq!(went.sent, went.echoed, "seed {seed}");
    let took = sim.elapsed();
    sim.finish(); // every operation over, every socket closed
    Ok(took)
}

#[test]
fn nothing_is_lost_on_this_machine() {
    let desk = Arc::new(Desk::default());
    let rt = Runtime::builder().workers(2).build().expect("a runtime");
    let went = rt.block_on(session(30, desk.clone())).expect("a session");
    assert_eq!(went.sent, went.echoed);
    assert!(went.flushed > 0 && desk.has_all_back());
}

#[test]
fn a_seed_says_everything() {
    let took: Vec<_> = [3, 3, 4].map(|seed| in_memory(seed).unwrap()).to_vec();
    assert_eq!(took[0], took[1]);
    assert_ne!(took[0], took[2]);
}

/// The server and its clients, stopped at each of their points.
#[test]
fn the_server_can_be_stopped_anywhere() {
    let desk = Arc::new(Mutex::new(Arc::new(Desk::default())));
    let seen = desk.clone();
    // A client that is cut off is a failure of its connection, which is for the
    // failure hook.
    let everywhere = kinfolk::testkit::CancelEverywhere::new().allow_failures();
    let went = everywhere.run_then(
        move || {
            let new = Arc::new(Desk::default());
            *desk.lock().unwrap() = new.clone();
            session(3, new)
        },
        move || assert!(seen.lock().unwrap().has_all_back()),
    );
    assert_eq!(went.forced, 0, "every wait hears it");
}
