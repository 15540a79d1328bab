//! The bank: a service of others, which takes money and gives it back, and takes its time.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One charge in so many is answered late.
const LATE: u64 = 20;

/// When the bank answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// After some milliseconds, one charge in twenty after seconds; refunds at once.
    ByTheClock,
    /// A charge when [`Bank::answer`] says so; refunds at once.
    WhenTold,
    /// Never.
    Never,
}

#[derive(Debug, Default)]
struct Accounts {
    charged: HashSet<i64>,
    /// A charge that comes after its refund is refused.
    refunded: HashSet<i64>,
    /// What has been asked for, the verb and the order.
    asked: HashSet<(String, i64)>,
    /// Charges that may be answered.
    answers: HashSet<i64>,
}

/// A bank that listens until it is dropped.
#[derive(Debug)]
pub struct Bank {
    at: SocketAddr,
    accounts: Arc<watch::Sender<Accounts>>,
    task: JoinHandle<()>,
}

impl Bank {
    /// Opens a bank on this tokio runtime.
    ///
    /// # Errors
    /// Of the network.
    pub async fn open(manner: Manner) -> io::Result<Bank> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let accounts = Arc::new(watch::Sender::new(Accounts::default()));
        let theirs = accounts.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // It ends with its client, which is ended before the bank is.
                tokio::spawn(serve(stream, theirs.clone(), manner));
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
        self.accounts.borrow().charged.clone()
    }

    /// Waits until `verb`, `charge` or `refund`, has been asked for.
    pub async fn is_asked(&self, verb: &str, id: i64) {
        let what = (verb.to_owned(), id);
        let mut accounts = self.accounts.subscribe();
        // The sender is in `self`.
        let _ = accounts.wait_for(|now| now.asked.contains(&what)).await;
    }

    /// Has a charge answered.
    pub fn answer(&self, id: i64) {
        self.accounts.send_modify(|accounts| {
            accounts.answers.insert(id);
        });
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One line, one answer. What was asked is done, whether or not its client waits.
async fn serve(
    stream: TcpStream,
    accounts: Arc<watch::Sender<Accounts>>,
    manner: Manner,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let asked = line.trim_end().split_once(' ');
    let Some((verb, Ok(id))) = asked.map(|(verb, id)| (verb, id.parse::<i64>())) else {
        return stream.write_all(b"what?\n").await;
    };
    let mut done = false;
    accounts.send_modify(|accounts| {
        accounts.asked.insert((verb.to_owned(), id));
        if verb == "charge" {
            done = !accounts.refunded.contains(&id) && accounts.charged.insert(id);
        } else if manner != Manner::Never {
            accounts.refunded.insert(id);
            accounts.charged.remove(&id);
            done = true;
        }
    });
    let answer = answer_is_due(&accounts, manner, verb, id);
    // Given up when the client hangs up.
    let mut end = String::new();
    tokio::select! {
        () = answer => {}
        _ = stream.read_line(&mut end) => return Ok(()),
    }
    let answer: &[u8] = if done { b"done\n" } else { b"refused\n" };
    stream.write_all(answer).await
}

async fn answer_is_due(accounts: &watch::Sender<Accounts>, manner: Manner, verb: &str, id: i64) {
    match manner {
        Manner::Never => std::future::pending().await,
        _ if verb != "charge" => {}
        Manner::WhenTold => {
            let mut accounts = accounts.subscribe();
            let _ = accounts.wait_for(|now| now.answers.contains(&id)).await;
        }
        Manner::ByTheClock => {
            let hash = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let wait = match hash % LATE {
                0 => Duration::from_secs(5),
                _ => Duration::from_millis(2 + hash % 20),
            };
            tokio::time::sleep(wait).await;
        }
    }
}
