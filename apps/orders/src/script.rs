//! The script: two scenes in which each step waits for the one before, so that each server does
//! the same every time. The bank answers when the script says so, and no limit of a server
//! passes unless the scene is about it.
//!
//! 1. *A client hangs up.* Two orders wait for the bank. The client of the first hangs up; SIGTERM
//!    comes; the bank answers the second. The first is answered only if the server does not end
//!    without that.
//! 2. *The bank is down.* An order waits for the bank, which answers nothing any more, refunds
//!    neither. SIGTERM comes, and the grace passes.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::bank::{Bank, Manner};
use crate::drill::{Books, compare};
use crate::process::{Folder, ServerProcess};
use crate::tally::Counts;
use crate::{BoxError, Kind, Limits};

/// How long a step may take that every server does.
const GUARD: Duration = Duration::from_secs(60);

/// How often a server or its socket is asked again.
const AGAIN: Duration = Duration::from_millis(2);

/// No server comes to such a limit.
const FAR: Duration = Duration::from_secs(3600);

/// What came of one server.
#[derive(Clone, Debug)]
pub struct Played {
    /// Which server.
    pub kind: Kind,
    /// The first scene.
    pub hang_up: HangUp,
    /// The second scene.
    pub bank_down: BankDown,
}

/// A client hangs up, and SIGTERM comes.
#[derive(Clone, Debug)]
pub struct HangUp {
    /// The work for the client that had hung up came to its end while the bank was silent.
    pub work_ends_with_client: bool,
    /// What the server counted.
    pub counts: Counts,
    /// The status for the client that waited, whose order was under way at SIGTERM.
    pub answered_after_sigterm: Option<u16>,
    /// The server ended before the bank answered the order of the client that had hung up.
    pub stops_without_the_bank: bool,
    /// When the server had ended. One order is to be paid: that of the client that waited.
    pub books: Books,
}

impl HangUp {
    /// Orders that were paid for the client that had hung up.
    pub fn paid_without_client(&self) -> u64 {
        self.books.whole.saturating_sub(1)
    }
}

/// The clean-up of an order hangs, and SIGTERM comes.
#[derive(Clone, Debug)]
pub struct BankDown {
    /// The status for its client.
    pub answered: Option<u16>,
    /// The server ended by itself.
    pub stops: bool,
    /// How many orders are half done.
    pub half_done: u64,
    /// The server has named the order on standard error.
    pub names_it: bool,
    /// All that it said there.
    pub said: String,
}

/// Plays both scenes with one server. `exe` is this program. `patience` is how long a server is
/// waited for that may do what the scene asks for, or never: one that never does it does not do
/// it later either.
///
/// # Errors
/// If a process cannot be started, or a step takes too long that every server does.
pub async fn play(exe: &Path, kind: Kind, patience: Duration) -> Result<Played, BoxError> {
    Ok(Played {
        kind,
        hang_up: hang_up(exe, kind, patience).await?,
        bank_down: bank_down(exe, kind, patience).await?,
    })
}

async fn hang_up(exe: &Path, kind: Kind, patience: Duration) -> Result<HangUp, BoxError> {
    let folder = Folder::new("hang-up", kind)?;
    let bank = Bank::open(Manner::WhenTold).await?;
    let limits = Limits {
        bank: FAR,
        grace: FAR,
        undo: FAR,
    };
    let mut server = ServerProcess::start(exe, kind, &folder, &bank, limits).await?;

    let (leaves, waits) = (order(server.at, 1), order(server.at, 2));
    step("both orders are at the bank", async {
        bank.is_asked("charge", 1).await;
        bank.is_asked("charge", 2).await;
        Ok(())
    })
    .await?;
    leaves.abort();
    let gone = counted(server.at, |counts| counts.gone == 1);
    step("the server has seen the hang-up", gone).await?;
    let over = counted(server.at, |counts| counts.now_without_client == 0);
    let work_ends_with_client = matches!(timeout(patience, over).await, Ok(Ok(())));

    server.terminate().await?;
    step("the server does not listen any more", refused(server.at)).await?;
    bank.answer(2);
    let answered = step("the client that waited has its answer", async {
        Ok(waits.await?)
    });
    let answered_after_sigterm = answered.await?;
    let stops_without_the_bank = server.ends_within(patience).await;
    bank.answer(1);
    if !server.ends_within(GUARD).await {
        return Err("the server does not end".into());
    }
    let (counts, _) = server.last_words().await?;
    Ok(HangUp {
        work_ends_with_client,
        counts,
        answered_after_sigterm,
        stops_without_the_bank,
        books: compare(&folder, &bank).await?,
    })
}

async fn bank_down(exe: &Path, kind: Kind, patience: Duration) -> Result<BankDown, BoxError> {
    let folder = Folder::new("bank-down", kind)?;
    let bank = Bank::open(Manner::Never).await?;
    let limits = Limits {
        bank: FAR,
        grace: Duration::from_millis(20),
        undo: Duration::from_millis(300),
    };
    let mut server = ServerProcess::start(exe, kind, &folder, &bank, limits).await?;
    let waits = order(server.at, 1);
    step("the order is at the bank", async {
        bank.is_asked("charge", 1).await;
        Ok(())
    })
    .await?;
    server.terminate().await?;
    let stops = server.ends_within(patience).await;
    if !stops {
        server.kill().await?;
    }
    let answered = step("its client sees an end", async { Ok(waits.await?) }).await?;
    let (_, said) = server.last_words().await?;
    Ok(BankDown {
        answered,
        stops,
        half_done: compare(&folder, &bank).await?.half_done,
        names_it: said.contains("/order/"),
        said,
    })
}

/// A step that every server comes to.
async fn step<T>(
    name: &str,
    step: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    match timeout(GUARD, step).await {
        Ok(done) => done,
        Err(_) => Err(format!("not after {GUARD:?}: {name}").into()),
    }
}

/// A client that orders, and waits for the status of its answer. Aborted, it hangs up.
fn order(server: SocketAddr, id: i64) -> JoinHandle<Option<u16>> {
    tokio::spawn(async move {
        let answer = ask(server, &format!("POST /order/{id}")).await.ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    })
}

async fn ask(server: SocketAddr, what: &str) -> Result<String, BoxError> {
    let mut stream = TcpStream::connect(server).await?;
    let head =
        format!("{what} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Asks the server until its counts are so.
async fn counted(server: SocketAddr, so: impl Fn(&Counts) -> bool) -> Result<(), BoxError> {
    loop {
        let answer = ask(server, "GET /counts").await?;
        let counts = answer.split("\r\n\r\n").nth(1).and_then(Counts::read);
        if so(&counts.ok_or("the counts of the server")?) {
            return Ok(());
        }
        sleep(AGAIN).await;
    }
}

/// Connects until that is refused.
async fn refused(server: SocketAddr) -> Result<(), BoxError> {
    while TcpStream::connect(server).await.is_ok() {
        sleep(AGAIN).await;
    }
    Ok(())
}

/// The table of all three.
pub struct ScriptTable(pub Vec<Played>);

impl fmt::Display for ScriptTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let status = |status: Option<u16>| match status {
            Some(status) => status.to_string(),
            None => "none".to_owned(),
        };
        let mut table = crate::drill::Rows::new(f, &self.0);
        table.row("the script, step by step", |of| of.kind.name().to_owned())?;
        table.row("a client hangs up: its work ends with it", |of| {
            yes(of.hang_up.work_ends_with_client)
        })?;
        table.row("  orders half done at the end", |of| {
            of.hang_up.books.half_done.to_string()
        })?;
        table.row("  orders paid that no client waits for", |of| {
            of.hang_up.paid_without_client().to_string()
        })?;
        table.row("  jobs left without a client, at SIGTERM", |of| {
            of.hang_up.counts.at_stop.to_string()
        })?;
        table.row("  the other client, answered after SIGTERM", |of| {
            status(of.hang_up.answered_after_sigterm)
        })?;
        table.row("  the server stops without the bank", |of| {
            yes(of.hang_up.stops_without_the_bank)
        })?;
        table.row("the bank is down: the client's answer", |of| {
            status(of.bank_down.answered)
        })?;
        table.row("  the server stops by itself", |of| yes(of.bank_down.stops))?;
        table.row("  orders half done at the end", |of| {
            of.bank_down.half_done.to_string()
        })?;
        table.row("  the server names them", |of| yes(of.bank_down.names_it))
    }
}
