//! The drill: a server as a process, clients as another, SIGTERM in the middle; then the
//! books of the shop and of the bank are compared.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sqlx::{Row, query};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::bank::Bank;
use crate::load::Answers;
use crate::shop::{self, STOCK};
use crate::tally::Counts;
use crate::{BoxError, Kind};

/// A server that stops no sooner is killed.
const LONGEST: Duration = Duration::from_secs(5);

/// How hard the drill is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many clients there are at a time.
    pub clients: u64,
    /// How long they have before SIGTERM.
    pub before: Duration,
    /// What they do.
    pub seed: u64,
}

/// What came of one server.
#[derive(Clone, Debug)]
pub struct Column {
    /// Which server.
    pub kind: Kind,
    /// What its clients saw.
    pub answers: Answers,
    /// What it says itself.
    pub counts: Counts,
    /// What the books say.
    pub books: Books,
    /// From SIGTERM to the end of the process.
    pub stopped_after: Duration,
    /// It had to be killed.
    pub killed: bool,
}

/// The books of the shop and of the bank, when the server has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Orders that are paid, and the bank says so too.
    pub whole: u64,
    /// Orders of which some step is done and another is not.
    pub half_done: u64,
    /// Of these, those for which the bank has the money.
    pub money_taken: u64,
    /// Pieces that are gone from the stock, and that no paid order has.
    pub stock_lost: i64,
}

/// A folder that is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(kind: Kind, seed: u64) -> Result<Folder, BoxError> {
        let name = format!("orders-{}-{}-{seed}", std::process::id(), kind as u8);
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs one server under load. `exe` is this program.
///
/// # Errors
/// If a process cannot be started, or says something else than it should.
pub async fn run(exe: &Path, kind: Kind, plan: Plan) -> Result<Column, BoxError> {
    let folder = Folder::new(kind, plan.seed)?;
    let bank = Bank::open().await?;
    let args = [
        "server",
        kind.name(),
        folder.0.to_str().ok_or("a folder with a plain name")?,
        &bank.at().to_string(),
    ];
    let (mut server, mut says) = start(exe, &args)?;
    // Its end is the end of the server, and a wait would close it.
    let _open = server.stdin.take();
    let at = says.next_line().await?.ok_or("where the server listens")?;
    let args = [
        "load",
        &at,
        &plan.clients.to_string(),
        &plan.seed.to_string(),
    ];
    let (mut load, mut load_says) = start(exe, &args)?;
    let mut tell = load.stdin.take().ok_or("standard input of the load")?;
    sleep(plan.before).await;

    tell.write_all(b"stopping\n").await?;
    let since = Instant::now();
    let id = server.id().ok_or("the server has ended by itself")?;
    let mut kill = Command::new("kill");
    let sent = kill.args(["-TERM", &id.to_string()]).status().await?;
    if !sent.success() {
        return Err("SIGTERM could not be sent".into());
    }
    let killed = timeout(LONGEST, server.wait()).await.is_err();
    let stopped_after = since.elapsed();
    if killed {
        server.kill().await?;
    }

    tell.write_all(b"over\n").await?;
    drop(tell);
    let answers = load_says.next_line().await?.unwrap_or_default();
    let answers = Answers::read(&answers).ok_or("what the clients saw")?;
    load.wait().await?;
    let counts = says.next_line().await?.unwrap_or_default();
    Ok(Column {
        kind,
        answers,
        counts: Counts::read(&counts).unwrap_or_default(),
        books: compare(&folder.0, &bank).await?,
        stopped_after,
        killed,
    })
}

/// Starts this program again. It ends with its handle.
fn start(exe: &Path, args: &[&str]) -> Result<(Child, Lines<BufReader<ChildStdout>>), BoxError> {
    let mut child = Command::new(exe)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let out = child.stdout.take().ok_or("standard output")?;
    Ok((child, BufReader::new(out).lines()))
}

/// Compares the books.
async fn compare(folder: &Path, bank: &Bank) -> Result<Books, BoxError> {
    let pool = shop::open(folder).await?;
    let mut states = HashMap::new();
    for row in query("SELECT id, state FROM orders")
        .fetch_all(&pool)
        .await?
    {
        states.insert(row.get::<i64, _>(0), row.get::<String, _>(1));
    }
    let left = query("SELECT left FROM stock").fetch_one(&pool).await?;
    let left: i64 = left.get(0);
    pool.close().await;
    let charged = bank.charged();
    let mut books = Books::default();
    for (id, state) in &states {
        match (state.as_str(), charged.contains(id)) {
            ("paid", true) => books.whole += 1,
            ("undone", false) => {}
            (state, has_money) => {
                books.half_done += 1;
                books.money_taken += u64::from(has_money && state != "paid");
            }
        }
    }
    let strays = charged.iter().filter(|id| !states.contains_key(id)).count() as u64;
    books.half_done += strays;
    books.money_taken += strays;
    let paid = states.values().filter(|state| *state == "paid").count();
    books.stock_lost = STOCK - left - paid as i64;
    Ok(books)
}

/// The table of all three.
pub struct Table(pub Vec<Column>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, cell: &dyn Fn(&Column) -> String| {
            let mut line = format!("{name:44}");
            for column in &self.0 {
                let _ = write!(line, "{:>16}", cell(column));
            }
            writeln!(f, "{line}")
        };
        row("", &|of| of.kind.name().into())?;
        row("orders made, and the client knows", &|of| {
            of.answers.made.to_string()
        })?;
        row("clients that hung up", &|of| of.answers.hung_up.to_string())?;
        row("orders half done at the end", &|of| {
            of.books.half_done.to_string()
        })?;
        row("  the bank has the money, no order is paid", &|of| {
            of.books.money_taken.to_string()
        })?;
        row("  pieces lost from the stock", &|of| {
            of.books.stock_lost.to_string()
        })?;
        row("work without a client, at SIGTERM", &|of| {
            of.counts.at_stop.to_string()
        })?;
        row("work that went on without its client", &|of| {
            of.counts.ran_on.to_string()
        })?;
        row("  for how long at most, ms", &|of| {
            format!("{:.1}", of.counts.longest.as_secs_f64() * 1e3)
        })?;
        row("answered after SIGTERM: made", &|of| {
            of.answers.made_late.to_string()
        })?;
        row("answered after SIGTERM: refused", &|of| {
            of.answers.refused_late.to_string()
        })?;
        row("cut off without an answer", &|of| {
            of.answers.cut.to_string()
        })?;
        row("time to stop, ms", &|of| match of.killed {
            true => "killed".into(),
            false => of.stopped_after.as_millis().to_string(),
        })
    }
}
