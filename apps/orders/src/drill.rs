//! The drill: a server as a process, clients as another, SIGTERM in the middle; then the
//! books of the shop and of the bank are compared.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Row, query};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::bank::{Bank, Manner};
use crate::load::Answers;
use crate::process::{Folder, Process, ServerProcess};
use crate::shop::{self, STOCK};
use crate::tally::Counts;
use crate::{BoxError, Kind, Limits};

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
    /// What it said on standard error.
    pub said: String,
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

/// Runs one server under load. `exe` is this program.
///
/// # Errors
/// If a process cannot be started, or says something else than it should.
pub async fn run(exe: &Path, kind: Kind, plan: Plan) -> Result<Column, BoxError> {
    let folder = Folder::new(&plan.seed.to_string(), kind)?;
    let bank = Bank::open(Manner::ByTheClock).await?;
    let limits = Limits::default();
    let mut server = ServerProcess::start(exe, kind, &folder, &bank, limits).await?;
    let args = [
        "load",
        &server.at.to_string(),
        &plan.clients.to_string(),
        &plan.seed.to_string(),
    ];
    let mut load = Process::start(exe, &args)?;
    sleep(plan.before).await;

    load.tell.write_all(b"stopping\n").await?;
    let since = Instant::now();
    server.terminate().await?;
    let killed = !server.ends_within(LONGEST).await;
    let stopped_after = since.elapsed();
    if killed {
        server.kill().await?;
    }

    load.tell.write_all(b"over\n").await?;
    drop(load.tell);
    let answers = load.says.next_line().await?.unwrap_or_default();
    let answers = Answers::read(&answers).ok_or("what the clients saw")?;
    load.child.wait().await?;
    let (counts, said) = server.last_words().await?;
    Ok(Column {
        kind,
        answers,
        counts,
        books: compare(&folder, &bank).await?,
        stopped_after,
        killed,
        said,
    })
}

/// Compares the books.
pub(crate) async fn compare(folder: &Folder, bank: &Bank) -> Result<Books, BoxError> {
    let pool = shop::open(&folder.0).await?;
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

/// The rows of a table, with a column for each of these.
pub(crate) struct Rows<'a, 'f, T> {
    out: &'a mut fmt::Formatter<'f>,
    columns: &'a [T],
}

impl<'a, 'f, T> Rows<'a, 'f, T> {
    pub(crate) fn new(out: &'a mut fmt::Formatter<'f>, columns: &'a [T]) -> Rows<'a, 'f, T> {
        Rows { out, columns }
    }

    pub(crate) fn row(&mut self, name: &str, cell: impl Fn(&T) -> String) -> fmt::Result {
        let mut line = format!("{name:44}");
        for column in self.columns {
            write!(line, "{:>16}", cell(column))?;
        }
        writeln!(self.out, "{line}")
    }
}

/// The table of all three.
pub struct Table(pub Vec<Column>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Rows::new(f, &self.0);
        table.row("under load", |of| of.kind.name().into())?;
        table.row("orders made, and the client knows", |of| {
            of.answers.made.to_string()
        })?;
        table.row("clients that hung up", |of| of.answers.hung_up.to_string())?;
        table.row("orders half done at the end", |of| {
            of.books.half_done.to_string()
        })?;
        table.row("  the bank has the money, no order is paid", |of| {
            of.books.money_taken.to_string()
        })?;
        table.row("  pieces lost from the stock", |of| {
            of.books.stock_lost.to_string()
        })?;
        table.row("work without a client, at SIGTERM", |of| {
            of.counts.at_stop.to_string()
        })?;
        table.row("work that went on without its client", |of| {
            of.counts.ran_on.to_string()
        })?;
        table.row("  for how long at most, ms", |of| {
            format!("{:.1}", of.counts.longest.as_secs_f64() * 1e3)
        })?;
        table.row("answered after SIGTERM: made", |of| {
            of.answers.made_late.to_string()
        })?;
        table.row("answered after SIGTERM: refused", |of| {
            of.answers.refused_late.to_string()
        })?;
        table.row("cut off without an answer", |of| of.answers.cut.to_string())?;
        table.row("time to stop, ms", |of| match of.killed {
            true => "killed".into(),
            false => of.stopped_after.as_millis().to_string(),
        })
    }
}
