//! The bank: a service of others, which takes money and gives it back, and takes its time.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// One charge in so many is answered late.
const LATE: u64 = 20;

#[derive(Debug, Default)]
struct Accounts {
    charged: HashSet<i64>,
    /// A charge that comes after its refund is refused.
    refunded: HashSet<i64>,
}

/// A bank that listens until it is dropped.
#[derive(Debug)]
pub struct Bank {
    at: SocketAddr,
    accounts: Arc<Mutex<Accounts>>,
    task: JoinHandle<()>,
}

impl Bank {
    /// Opens a bank on this tokio runtime.
    ///
    /// # Errors
    /// Of the network.
    pub async fn open() -> io::Result<Bank> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let accounts = Arc::new(Mutex::new(Accounts::default()));
        let theirs = accounts.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // It ends with its client, which is ended before the bank is.
                tokio::spawn(serve(stream, theirs.clone()));
            }
        });
        Ok(Bank { at, accounts, task })
    }

    /// Where it listens.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// The orders that are charged, and not refunded.
    pub fn charged(&self) -> HashSet<i64> {
        let accounts = self.accounts.lock();
        accounts
            .unwrap_or_else(PoisonError::into_inner)
            .charged
            .clone()
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One line, one answer. What was asked is done, whether or not its client waits.
async fn serve(stream: TcpStream, accounts: Arc<Mutex<Accounts>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let asked = line.trim_end().split_once(' ');
    let Some((verb, Ok(id))) = asked.map(|(verb, id)| (verb, id.parse::<i64>())) else {
        return stream.write_all(b"what?\n").await;
    };
    let done = {
        let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if verb == "refund" {
            accounts.refunded.insert(id);
            accounts.charged.remove(&id);
            true
        } else {
            !accounts.refunded.contains(&id) && accounts.charged.insert(id)
        }
    };
    if verb == "charge" {
        let hash = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let wait = match hash % LATE {
            0 => Duration::from_secs(5),
            _ => Duration::from_millis(2 + hash % 20),
        };
        // Given up when the client hangs up.
        let mut end = String::new();
        let hangs_up = tokio::time::timeout(wait, stream.read_line(&mut end));
        if hangs_up.await.is_ok() {
            return Ok(());
        }
    }
    let answer: &[u8] = if done { b"done\n" } else { b"refused\n" };
    stream.write_all(answer).await
}
