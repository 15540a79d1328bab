//! Transactions by sqlx on sqlite, cancelled after each of their polls.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk::{OrCancel, OrFail, Result, shield};
use kinfolk_client_tests::{Awaited, On, Place, after_each_poll, at};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Row, SqlitePool, query};

/// What both accounts have together.
const MONEY: i64 = 1000;

/// How often a race is run for both of its ends, at the most.
const ROUNDS: usize = 40;

/// Of the pool.
const CONNECTIONS: u32 = 2;

/// A folder that is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "kinfolk-clients-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, SeqCst)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn open(folder: &Path) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("money.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(60));
    let pool = SqlitePoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(Duration::from_secs(60))
        .connect_with(options)
        .await
        .or_fail()?;
    for line in [
        "CREATE TABLE account (name TEXT PRIMARY KEY, money INTEGER NOT NULL)",
        "CREATE TABLE transfer (id INTEGER PRIMARY KEY)",
    ] {
        query(line).execute(&pool).await.or_fail()?;
    }
    let accounts = query("INSERT INTO account VALUES ('from', ?), ('to', 0)");
    accounts.bind(MONEY).execute(&pool).await.or_fail()?;
    Ok(pool)
}

/// Moves one coin, and says so in another table.
async fn transfer(pool: SqlitePool, id: i64) -> Result<()> {
    let mut all = pool.begin().await.or_fail()?;
    let took = query("UPDATE account SET money = money - 1 WHERE name = 'from'");
    took.execute(&mut *all).await.or_fail()?;
    let said = query("INSERT INTO transfer VALUES (?)").bind(id);
    said.execute(&mut *all).await.or_fail()?;
    let gave = query("UPDATE account SET money = money + 1 WHERE name = 'to'");
    gave.execute(&mut *all).await.or_fail()?;
    all.commit().await.or_fail()
}

async fn number(pool: &SqlitePool, line: &'static str) -> i64 {
    let row = query(line).fetch_one(pool).await.unwrap();
    row.get(0)
}

/// Whether the transfer is there. It is whole or absent, and so is every other.
async fn looks(pool: &SqlitePool, id: i64) -> bool {
    let from = number(pool, "SELECT money FROM account WHERE name = 'from'").await;
    let to = number(pool, "SELECT money FROM account WHERE name = 'to'").await;
    let all = number(pool, "SELECT count(*) FROM transfer").await;
    assert_eq!((from + to, to), (MONEY, all), "half a transfer is there");
    let there = query("SELECT count(*) FROM transfer WHERE id = ?").bind(id);
    let row = there.fetch_one(pool).await.unwrap();
    row.get::<i64, _>(0) == 1
}

/// Every connection of the pool is back, and none is in a transaction.
async fn takes_all(pool: &SqlitePool) {
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        all.push(pool.acquire().await.unwrap());
    }
    for connection in &mut all {
        // An error in a transaction, and while another connection is in one.
        for line in ["BEGIN IMMEDIATE", "ROLLBACK"] {
            query(line).execute(&mut **connection).await.unwrap();
        }
    }
}

/// Cancelled after each poll, a transaction is whole or absent, and its connection comes back.
fn transfers(place: &Place, awaited: Awaited) {
    let folder = Folder::new();
    let pool = place.tokio(open(&folder.0)).unwrap();
    let ids = AtomicI64::new(0);
    let make = || transfer(pool.clone(), ids.fetch_add(1, SeqCst));
    let (mut there, mut absent) = (0, 0);
    let cancelled = after_each_poll(place, awaited, make, |ran| {
        place.until(|| pool.num_idle() == pool.size() as usize);
        let is_there = place.tokio(looks(&pool, ids.load(SeqCst) - 1));
        assert!(is_there || ran.value.is_none(), "lost: {ran:?}");
        if is_there {
            there += 1;
        } else {
            absent += 1;
        }
        place.tokio(takes_all(&pool));
    });
    assert!(cancelled > 1);
    if awaited == Awaited::Cleanup {
        assert_eq!(absent, 0, "a clean-up is not cut short");
    } else {
        assert!(there > 0 && absent > 0, "{there} there, {absent} absent");
    }
    let check = place.tokio(query("PRAGMA integrity_check").fetch_one(&pool));
    assert_eq!(check.unwrap().get::<String, _>(0), "ok");
    place.tokio(pool.close());
}

/// A line of SQL outside a transaction, dropped after each poll: the database goes on with it.
fn lines(place: &Place) {
    let folder = Folder::new();
    let pool = place.tokio(open(&folder.0)).unwrap();
    let ids = AtomicI64::new(0);
    let make = || {
        let (pool, id) = (pool.clone(), ids.fetch_add(1, SeqCst));
        async move {
            let said = query("INSERT INTO transfer VALUES (?)").bind(id);
            said.execute(&pool).await.or_fail()?;
            Ok(())
        }
    };
    let mut done_all_the_same = 0;
    // Whether the database has begun with it is a matter of its thread.
    for _ in 0..ROUNDS {
        after_each_poll(place, Awaited::OrCancel, &make, |ran| {
            place.until(|| pool.num_idle() == pool.size() as usize);
            let there = query("SELECT count(*) FROM transfer WHERE id = ?");
            let there = there.bind(ids.load(SeqCst) - 1).fetch_one(&pool);
            let there: i64 = place.tokio(there).unwrap().get(0);
            assert!(there == 1 || ran.value.is_none(), "lost: {ran:?}");
            done_all_the_same += usize::from(there == 1 && ran.value.is_none());
            place.tokio(takes_all(&pool));
        });
        if done_all_the_same > 0 {
            break;
        }
    }
    assert!(done_all_the_same > 0);
    place.tokio(pool.close());
}

/// `begin_with`, dropped after each poll: its connection may go back to the pool in the
/// transaction. In a shield it does not.
fn begun_with(place: &Place, is_shielded: bool) {
    let folder = Folder::new();
    let pool = place.tokio(open(&folder.0)).unwrap();
    let make = || {
        let pool = pool.clone();
        async move {
            let begins = async { pool.begin_with("BEGIN IMMEDIATE").await.or_fail() };
            let all = match is_shielded {
                true => shield(begins).await?,
                false => begins.or_cancel().await??,
            };
            all.rollback().await.or_fail()
        }
    };
    let mut left_open = 0;
    let awaited = match is_shielded {
        true => Awaited::Bare,
        false => Awaited::OrCancel,
    };
    for _ in 0..ROUNDS {
        after_each_poll(place, awaited, &make, |_| {
            place.until(|| pool.num_idle() == pool.size() as usize);
            place.tokio(async {
                // All at once: a transaction that is left open holds up those of the others.
                let mut all = Vec::new();
                for _ in 0..CONNECTIONS {
                    all.push(pool.acquire().await.unwrap());
                }
                for mut one in all {
                    if query("BEGIN").execute(&mut *one).await.is_err() {
                        left_open += 1;
                        // It ends with its transaction.
                        drop(one.detach());
                    } else {
                        query("ROLLBACK").execute(&mut *one).await.unwrap();
                    }
                }
            });
        });
        if left_open > 0 {
            break;
        }
    }
    assert_eq!(left_open > 0, !is_shielded, "{left_open} left open");
    place.tokio(pool.close());
}

/// cancel-5: a line of SQL that was sent is done, though its future was dropped.
#[test]
fn cancel_5_sqlx_goes_on_with_a_line_that_was_dropped() {
    for on in [On::OneThread, On::Workers, On::Native] {
        at(on, lines);
    }
}

/// shield-2: `begin_with` of sqlx 0.8 loses an open transaction when it is dropped, and
/// loses none in a shield.
#[test]
fn shield_2_sqlx_begin_with_needs_a_shield() {
    for on in [On::OneThread, On::Workers, On::Native] {
        at(on, |place| begun_with(place, false));
        at(on, |place| begun_with(place, true));
    }
}

/// cancel-6: a transaction that hears nothing is dropped when patience is over.
#[test]
fn cancel_6_sqlx_in_a_job_is_dropped_after_each_poll() {
    for on in [On::OneThread, On::Workers] {
        at(on, |place| transfers(place, Awaited::Bare));
    }
}

/// cancel-5: a transaction is dropped when its job is told.
#[test]
fn cancel_5_sqlx_under_or_cancel_after_each_poll() {
    for on in [On::OneThread, On::Workers] {
        at(on, |place| transfers(place, Awaited::OrCancel));
    }
}

/// shield-3: a transaction in a clean-up is whole, whenever the cancel comes.
#[test]
fn shield_3_sqlx_in_a_clean_up_is_whole() {
    for on in [On::OneThread, On::Workers, On::Native] {
        at(on, |place| transfers(place, Awaited::Cleanup));
    }
}

/// cancel-5: on the native runtime too, through `within`.
#[test]
fn cancel_5_sqlx_on_the_native_runtime_after_each_poll() {
    for awaited in [Awaited::Bare, Awaited::OrCancel] {
        at(On::Native, move |place| transfers(place, awaited));
    }
}
