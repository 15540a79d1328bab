//! The clients: a process of its own. Some wait for their answer, some hang up at random.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a client waits that does not hang up before.
const PATIENCE: Duration = Duration::from_millis(300);

/// What the clients have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Orders that were made.
    pub made: u64,
    /// Orders that the server said it has not made.
    pub refused: u64,
    /// Clients that have hung up.
    pub hung_up: u64,
    /// Connections that ended without an answer.
    pub cut: u64,
    /// Orders that were made after the shutdown had begun.
    pub made_late: u64,
    /// And those refused.
    pub refused_late: u64,
    /// And connections that ended without an answer.
    pub cut_late: u64,
}

impl Answers {
    /// What [`run`] has written.
    pub fn read(line: &str) -> Option<Answers> {
        let mut numbers = line.split(' ').map_while(|word| word.parse().ok());
        let mut next = || numbers.next();
        Some(Answers {
            made: next()?,
            refused: next()?,
            hung_up: next()?,
            cut: next()?,
            made_late: next()?,
            refused_late: next()?,
            cut_late: next()?,
        })
    }
}

/// What the clients share.
#[derive(Default)]
struct Crowd {
    /// The server was told to stop.
    stopping: AtomicBool,
    over: AtomicBool,
    next: AtomicI64,
    /// As in [`Answers`].
    seen: [AtomicU64; 7],
}

impl Crowd {
    fn see(&self, what: usize) {
        self.seen[what].fetch_add(1, SeqCst);
        // The same, late.
        let late = [4, 5, usize::MAX, 6][what];
        if self.stopping.load(SeqCst) && late != usize::MAX {
            self.seen[late].fetch_add(1, SeqCst);
        }
    }
}

/// Runs so many clients against the server, until standard input says `over` or ends. After
/// `stopping` a refused connection is the end of a client. Writes one line of [`Answers`].
///
/// # Errors
/// Of standard input.
pub async fn run(server: SocketAddr, clients: u64, seed: u64) -> io::Result<()> {
    let crowd = Arc::new(Crowd::default());
    let mut all = tokio::task::JoinSet::new();
    for n in 0..clients {
        all.spawn(client(server, crowd.clone(), Dice(seed ^ (n + 1))));
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "stopping" => crowd.stopping.store(true, SeqCst),
            _ => break,
        }
    }
    crowd.over.store(true, SeqCst);
    while all.join_next().await.is_some() {}
    let seen = crowd.seen.each_ref().map(|n| n.load(SeqCst).to_string());
    println!("{}", seen.join(" "));
    Ok(())
}

/// Of a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) >> 20) % below
    }
}

async fn client(server: SocketAddr, crowd: Arc<Crowd>, mut dice: Dice) {
    while !crowd.over.load(SeqCst) {
        let Ok(stream) = TcpStream::connect(server).await else {
            if crowd.stopping.load(SeqCst) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let id = crowd.next.fetch_add(1, SeqCst);
        // One in three changes its mind while the order is made.
        let patience = match dice.roll(3) {
            0 => Duration::from_micros(dice.roll(25_000)),
            _ => PATIENCE,
        };
        crowd.see(match timeout(patience, ask(stream, id)).await {
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200") => 0,
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 503") => 1,
            Ok(_) => 3,
            Err(_) => 2,
        });
    }
}

async fn ask(mut stream: TcpStream, id: i64) -> io::Result<String> {
    let head = format!(
        "POST /order/{id} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
