//! Series that are stopped in the middle, at random: what the random test and the
//! soak have in common. Every byte and every connection is accounted for, every
//! buffer goes back to its pool.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Outcome, Result, checkpoint, scope, spawn, timeout, yield_now,
};
use kinfolk_runtime::fs::remove_file;
use kinfolk_runtime::io::{BufferPool, Chunk, told};
use kinfolk_runtime::net::{Chunks, TcpListener, TcpStream, UnixListener, UnixStream};
use kinfolk_testkit::Rng;
use kinfolk_testkit::io::{Quarantine, Quarantined};

/// Bytes that are written lie below: what else is read comes from memory that
/// was given back, whose pattern lies above.
pub const MOST_BYTE: u8 = 0x80;

/// What was sent or accepted and does not come in so long is lost.
const LONG: Duration = Duration::from_secs(60);

pub type Operation = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What was found to be wrong is not passed over.
fn ended(result: Result<()>) {
    if let Err(error) = result {
        error.resume();
    }
}

/// One way or another, it ends.
pub async fn end(mut operation: Operation, rng: &mut Rng) -> Result<()> {
    let limit = Duration::from_micros(rng.below(200) as u64);
    match rng.below(4) {
        // Polled a few times, and dropped.
        0 => {
            for _ in 0..rng.below(3) {
                let over = poll_fn(|cx| Poll::Ready(operation.as_mut().poll(cx).is_ready())).await;
                if over {
                    break;
                }
                yield_now().await?;
            }
        }
        // Cancelled from outside, after a while or at once.
        1 => {
            let task = spawn(operation);
            for _ in 0..rng.below(4) {
                yield_now().await?;
            }
            task.cancel("enough");
            if let Outcome::Failed(error) = task.outcome().await? {
                error.resume();
            }
        }
        // Both: timed out by a scope that is dropped before.
        2 => {
            let mut limited = pin!(timeout(limit, operation));
            for _ in 0..1 + rng.below(3) {
                let polled = poll_fn(|cx| Poll::Ready(limited.as_mut().poll(cx))).await;
                if let Poll::Ready(result) = polled {
                    ended(result);
                    break;
                }
                yield_now().await?;
            }
        }
        _ => ended(timeout(limit, operation).await),
    }
    Ok(())
}

/// What they all share.
pub struct Place {
    /// For sockets with a name.
    dir: PathBuf,
    quarantine: Quarantine,
    /// For all of them together; some have one of their own.
    pool: BufferPool,
    names: AtomicU64,
}

/// How many buffers the common pool has, and how long they are.
const COMMON: (usize, usize) = (8, 64);

impl Place {
    pub fn new(dir: PathBuf, quarantine: Quarantine) -> Place {
        Place {
            dir,
            quarantine,
            pool: BufferPool::new(COMMON.0, COMMON.1),
            names: AtomicU64::new(0),
        }
    }

    /// No stream receives any more: all buffers are back.
    pub async fn check(&self) -> Result<()> {
        all_are_back(&self.pool, COMMON).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if it may go well the next time; an error if the job was told.
fn transient(error: &io::Error) -> Result<bool> {
    if let Some(told) = told(error) {
        return Err(told.clone().into());
    }
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Ok(true),
        // Too many files have no kind.
        _ => Ok(error.raw_os_error() == Some(libc::EMFILE)),
    }
}

/// Until it goes well, or fails for good.
async fn again<T, F>(mut f: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match f().await {
            Ok(done) => return Ok(done),
            Err(error) if transient(&error)? => checkpoint().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Panics if it takes too long.
async fn in_time<T>(what: &str, f: impl Future<Output = Result<T>>) -> Result<T> {
    let done = timeout(LONG, f).await;
    let lost = matches!(&done, Err(error) if error.kind() == ErrorKind::TimedOut);
    assert!(!lost, "{what}");
    done
}

/// A stream of either sort.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn chunks(&self, pool: &BufferPool) -> Chunks {
        match self {
            Stream::Tcp(stream) => stream.chunks(pool),
            Stream::Unix(stream) => stream.chunks(pool),
        }
    }

    async fn read(&self, buf: Quarantined) -> (io::Result<usize>, Quarantined) {
        match self {
            Stream::Tcp(stream) => stream.read(buf).await,
            Stream::Unix(stream) => stream.read(buf).await,
        }
    }

    async fn write(&self, buf: Quarantined) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buf).await.0,
            Stream::Unix(stream) => stream.write(buf).await.0,
        }
    }
}

/// What was sent and what was taken of one stream. Which byte is the next is
/// known from its place.
struct Ledger {
    first: u64,
    sent: AtomicU64,
    taken: AtomicU64,
}

impl Ledger {
    fn byte(&self, at: u64) -> u8 {
        ((self.first + at + at / 97) % u64::from(MOST_BYTE)) as u8
    }

    /// Those bytes, from that place on.
    fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        (at..at + count as u64).map(|at| self.byte(at)).collect()
    }

    /// These are the next; where they begin.
    fn take(&self, bytes: &[u8]) -> u64 {
        let at = self.taken.fetch_add(bytes.len() as u64, SeqCst);
        self.assert_same(at, bytes);
        at
    }

    fn assert_same(&self, at: u64, bytes: &[u8]) {
        if self.bytes(at, bytes.len()) != bytes {
            panic!("from byte {at} on it was not sent so: {bytes:?}");
        }
    }
}

/// Chunks that are held: no other code touches them.
#[derive(Default)]
struct HeldChunks(Mutex<Vec<(u64, Chunk)>>);

impl HeldChunks {
    fn add(&self, at: u64, chunk: Chunk) {
        lock(&self.0).push((at, chunk));
    }

    fn release(&self, ledger: &Ledger) {
        for (at, chunk) in std::mem::take(&mut *lock(&self.0)) {
            ledger.assert_same(at, &chunk);
        }
    }
}

/// What the two sides of a stream do.
struct Talk {
    place: Arc<Place>,
    ledger: Ledger,
    held: HeldChunks,
}

impl Talk {
    /// Writes so many bytes and hangs up.
    async fn feed(&self, stream: Stream, bytes: u64, rng: &mut Rng) -> Result<()> {
        let mut at = 0;
        while at < bytes {
            let len = (1 + rng.below(200)).min((bytes - at) as usize);
            let buf = self.place.quarantine.filled(self.ledger.bytes(at, len));
            match stream.write(buf).await {
                Ok(written) => {
                    at += written as u64;
                    self.ledger.sent.store(at, SeqCst);
                }
                Err(error) if transient(&error)? => {}
                // Nobody listens any more.
                Err(_) => return Ok(()),
            }
            for _ in 0..rng.below(3) {
                yield_now().await?;
            }
        }
        Ok(())
    }

    /// Takes some chunks; true at the end. A chunk that was taken is in the books
    /// before anything can stop it. Who `holds` them may wait for ever: for one of
    /// them to come back.
    async fn take_some(
        &self,
        stream: &Stream,
        pool: &BufferPool,
        holds: bool,
        mut rng: Rng,
    ) -> Result<bool> {
        let mut chunks = stream.chunks(pool);
        for _ in 0..1 + rng.below(6) {
            match chunks.next().await {
                None => return Ok(true),
                Some(Ok(chunk)) => {
                    let at = self.ledger.take(&chunk);
                    self.held.add(at, chunk);
                }
                Some(Err(error)) => assert!(transient(&error)?, "{error}"),
            }
            if !holds || rng.below(2) == 0 {
                self.held.release(&self.ledger);
            }
            if rng.below(4) == 0 {
                yield_now().await?;
            }
        }
        Ok(false)
    }

    /// Reads once, in another way; true at the end. Not to be stopped: then what
    /// it has read would be lost.
    async fn read_once(&self, stream: &Stream, room: usize) -> Result<bool> {
        let (read, buf) = stream.read(self.place.quarantine.buf(room)).await;
        match read {
            Ok(0) => return Ok(true),
            Ok(_) => drop(self.ledger.take(&buf)),
            Err(error) => assert!(transient(&error)?, "{error}"),
        }
        Ok(false)
    }
}

/// For a listener: one of the many addresses of this machine. The ports of a single
/// one would run out: each is kept for a minute after its last connection.
fn somewhere(rng: &mut Rng) -> SocketAddr {
    let [a, b, c] = [(); 3].map(|()| 1 + rng.below(254) as u8);
    SocketAddr::from(([127, a, b, c], 0))
}

/// Two streams that are connected with each other, unless a fault prevents it.
async fn connected(rng: &mut Rng) -> Result<(Stream, Stream)> {
    if rng.below(4) > 0 {
        let (one, two) = again(|| std::future::ready(UnixStream::pair())).await?;
        return Ok((Stream::Unix(one), Stream::Unix(two)));
    }
    let addr = somewhere(rng);
    let listener = again(|| TcpListener::bind(addr)).await?;
    let addr = listener.local_addr()?;
    let one = again(|| TcpStream::connect(addr)).await?;
    let (two, _) = again(|| listener.accept()).await?;
    Ok((Stream::Tcp(one), Stream::Tcp(two)))
}

/// One side writes. The other receives in chunks and is stopped again and again;
/// what it gets in the end is what was written.
pub async fn receive(place: &Arc<Place>, rng: &mut Rng) -> Result<()> {
    let (one, two) = connected(rng).await?;
    let two = Arc::new(two);
    let size = (1 + rng.below(4), 1 + rng.below(100));
    let own = (rng.below(3) > 0).then(|| BufferPool::new(size.0, size.1));
    let pool = own.as_ref().unwrap_or(&place.pool);
    let talk = Arc::new(Talk {
        place: place.clone(),
        ledger: Ledger {
            first: rng.below(100) as u64,
            sent: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        },
        held: HeldChunks::default(),
    });
    let (bytes, mut feeds) = (rng.below(2_000) as u64, Rng::new(rng.next_u64()));
    scope(async |s| {
        let feeder = talk.clone();
        s.launch(async move { feeder.feed(one, bytes, &mut feeds).await });
        for _ in 0..rng.below(6) {
            // Sometimes of a pool that is gone when it is stopped.
            let pool = match rng.below(4) {
                0 => BufferPool::new(size.0, size.1),
                _ => pool.clone(),
            };
            let (taker, from, takes) = (talk.clone(), two.clone(), Rng::new(rng.next_u64()));
            let some = async move { drop(taker.take_some(&from, &pool, true, takes).await) };
            end(Box::pin(some), rng).await?;
            match rng.below(4) {
                0 => talk.held.release(&talk.ledger),
                1 => {
                    let once = talk.read_once(&two, 1 + rng.below(100));
                    in_time("bytes were lost on their way to a read", once).await?;
                }
                _ => {}
            }
        }
        // Sometimes nobody wants the rest.
        if rng.below(3) == 0 {
            return Ok(());
        }
        talk.held.release(&talk.ledger);
        in_time("bytes were lost, or a buffer", async {
            loop {
                let ended = match rng.below(4) {
                    0 => talk.read_once(&two, 100).await?,
                    _ => {
                        let takes = Rng::new(rng.next_u64());
                        talk.take_some(&two, pool, false, takes).await?
                    }
                };
                if ended {
                    return Ok(());
                }
            }
        })
        .await?;
        // Not if the other side was told to stop.
        checkpoint().await?;
        let (sent, taken) = (
            talk.ledger.sent.load(SeqCst),
            talk.ledger.taken.load(SeqCst),
        );
        assert_eq!((sent, taken), (bytes, bytes), "bytes sent, bytes taken");
        Ok::<_, Error>(())
    })
    .await?;
    talk.held.release(&talk.ledger);
    drop(two);
    if let Some(pool) = own {
        all_are_back(&pool, size).await?;
    }
    Ok(())
}

async fn some(stream: &UnixStream, bytes: usize) -> io::Result<usize> {
    stream.write(vec![1_u8; bytes]).await.0
}

/// No stream receives any more: all buffers of a pool are back, so that as many chunks
/// can be held at once.
async fn all_are_back(pool: &BufferPool, (count, size): (usize, usize)) -> Result<()> {
    let (one, two) = again(|| std::future::ready(UnixStream::pair())).await?;
    scope(async |s| {
        s.launch(async move {
            let mut left = count * size;
            while left > 0 {
                left -= again(|| some(&one, left)).await?;
            }
            Ok::<_, Error>(())
        });
        let mut held = Vec::new();
        in_time("a buffer did not come back to its pool", async {
            let mut chunks = two.chunks(pool);
            while held.len() < count {
                match chunks.next().await {
                    Some(Ok(chunk)) => held.push(chunk),
                    Some(Err(error)) => assert!(transient(&error)?, "{error}"),
                    None => {
                        // Not if the other side was told to stop.
                        checkpoint().await?;
                        panic!("{} of {count} chunks, and no more", held.len());
                    }
                }
            }
            Ok(())
        })
        .await
    })
    .await
}

/// A listener of either sort.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    async fn bind(place: &Place, rng: &mut Rng) -> Result<Listener> {
        if rng.below(4) == 0 {
            let addr = somewhere(rng);
            let listener = again(|| TcpListener::bind(addr)).await?;
            return Ok(Listener::Tcp(listener));
        }
        let n = place.names.fetch_add(1, SeqCst);
        let path = place.dir.join(format!("listener-{n}"));
        let listener = again(|| UnixListener::bind(&path)).await?;
        Ok(Listener::Unix(listener, path))
    }

    async fn connect(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Tcp(listener) => {
                Stream::Tcp(TcpStream::connect(listener.local_addr()?).await?)
            }
            Listener::Unix(_, path) => Stream::Unix(UnixStream::connect(path).await?),
        })
    }

    /// Accepts one, not to be stopped.
    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Tcp(listener) => Stream::Tcp(listener.accept().await?.0),
            Listener::Unix(listener, _) => Stream::Unix(listener.accept().await?.0),
        })
    }

    /// So many connections go to `taken`, at once, whatever stops it then.
    async fn accept_some(&self, count: usize, taken: &Mutex<Vec<Stream>>) -> Result<()> {
        match self {
            Listener::Tcp(listener) => {
                let mut incoming = listener.incoming();
                for _ in 0..count {
                    match incoming.next().await.expect("it never ends") {
                        Ok(stream) => lock(taken).push(Stream::Tcp(stream)),
                        Err(error) => assert!(transient(&error)?, "{error}"),
                    }
                }
            }
            Listener::Unix(listener, _) => {
                let mut incoming = listener.incoming();
                for _ in 0..count {
                    match incoming.next().await.expect("it never ends") {
                        Ok(stream) => lock(taken).push(Stream::Unix(stream)),
                        Err(error) => assert!(transient(&error)?, "{error}"),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Several connect. The other side takes them as they come in and is stopped again
/// and again. In the end each of them was taken, once, or closed by the listener.
pub async fn accept(place: &Arc<Place>, rng: &mut Rng) -> Result<()> {
    let listener = Arc::new(Listener::bind(place, rng).await?);
    let taken: Arc<Mutex<Vec<Stream>>> = Arc::default();
    let count = rng.below(8);
    // Each says its number.
    let (to, bufs) = (listener.clone(), place.quarantine.clone());
    let connects = async move {
        let mut clients = Vec::new();
        for n in 0..count {
            let client = again(|| to.connect()).await?;
            again(|| client.write(bufs.filled([n as u8]))).await?;
            clients.push(client);
            yield_now().await?;
        }
        Ok::<_, Error>(clients)
    };
    let clients = scope(async |s| {
        let connects = s.spawn(connects);
        for _ in 0..rng.below(6) {
            let (from, into, most) = (listener.clone(), taken.clone(), 1 + rng.below(4));
            let some = async move { drop(from.accept_some(most, &into).await) };
            end(Box::pin(some), rng).await?;
        }
        if rng.below(3) == 0 {
            // What was accepted and not taken is closed with the listener.
            return connects.await;
        }
        in_time("a connection was lost", async {
            while lock(&taken).len() < count {
                match rng.below(2) {
                    0 => {
                        let one = again(|| listener.accept()).await?;
                        lock(&taken).push(one);
                    }
                    _ => {
                        let left = count - lock(&taken).len();
                        listener.accept_some(left, &taken).await?;
                    }
                }
            }
            Ok(())
        })
        .await?;
        connects.await
    })
    .await?;
    let taken = std::mem::take(&mut *lock(&taken));
    let mut numbers = BTreeSet::new();
    for stream in &taken {
        let number = again(|| async {
            let (read, buf) = stream.read(place.quarantine.buf(1)).await;
            read.map(|_| buf.first().copied())
        });
        let number = in_time("a connection says nothing", number).await?;
        assert!(number < Some(count as u8), "{number:?} of {count}");
        assert!(numbers.insert(number), "{number:?} was accepted twice");
    }
    if let Listener::Unix(_, path) = &*listener {
        again(|| remove_file(path)).await?;
    }
    drop((taken, listener));
    for client in clients {
        in_time("a connection was accepted and not closed", async {
            loop {
                match client.read(place.quarantine.buf(1)).await.0 {
                    Ok(0) => return Ok(()),
                    Ok(_) => panic!("nobody has written"),
                    Err(error) if transient(&error)? => {}
                    // With what it had said and nobody has read.
                    Err(_) => return Ok(()),
                }
            }
        })
        .await?;
    }
    Ok(())
}
