//! What an order consists of: stock and orders in a database, and a bank that is asked over
//! the network. No transaction spans both. All three servers share this file.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqlitePool, query};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::BoxError;

/// How much is in stock at first.
pub const STOCK: i64 = 1_000_000;

/// The name of the database in its folder.
pub const DATABASE: &str = "orders.db";

/// A shop: clones share its connections.
#[derive(Clone, Debug)]
pub struct Shop {
    pool: SqlitePool,
    bank: SocketAddr,
}

/// Opens the database in `folder`; makes it if it is not there.
pub async fn open(folder: &Path) -> Result<SqlitePool, BoxError> {
    let options = SqliteConnectOptions::new()
        .filename(folder.join(DATABASE))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Off)
        .busy_timeout(Duration::from_secs(10));
    let pool = SqlitePoolOptions::new()
        .max_connections(4)
        .connect_with(options)
        .await?;
    for line in [
        "CREATE TABLE IF NOT EXISTS stock (item INTEGER PRIMARY KEY, left INTEGER NOT NULL)",
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)",
    ] {
        query(line).execute(&pool).await?;
    }
    let stock = query("INSERT OR IGNORE INTO stock VALUES (1, ?)").bind(STOCK);
    stock.execute(&pool).await?;
    Ok(pool)
}

impl Shop {
    /// A shop whose database is in `folder` and whose bank listens at `bank`.
    ///
    /// # Errors
    /// Of the database.
    pub async fn open(folder: &Path, bank: SocketAddr) -> Result<Shop, BoxError> {
        let pool = open(folder).await?;
        Ok(Shop { pool, bank })
    }

    /// The first step: one piece is taken from the stock for this order. A transaction.
    ///
    /// # Errors
    /// Of the database.
    pub async fn reserve(&self, id: i64) -> Result<(), BoxError> {
        let mut both = self.pool.begin().await?;
        let order = query("INSERT INTO orders VALUES (?, 'reserved')").bind(id);
        order.execute(&mut *both).await?;
        let taken = query("UPDATE stock SET left = left - 1 WHERE item = 1");
        taken.execute(&mut *both).await?;
        both.commit().await?;
        Ok(())
    }

    /// The second step: the bank takes the money.
    ///
    /// # Errors
    /// Of the network, and if the bank refuses.
    pub async fn charge(&self, id: i64) -> Result<(), BoxError> {
        self.ask_bank(format!("charge {id}\n")).await
    }

    /// The third step: the order is paid.
    ///
    /// # Errors
    /// Of the database.
    pub async fn confirm(&self, id: i64) -> Result<(), BoxError> {
        let paid = query("UPDATE orders SET state = 'paid' WHERE id = ?").bind(id);
        paid.execute(&self.pool).await?;
        Ok(())
    }

    /// Undoes what has been done of an order, however far it came: the money goes back, then
    /// the piece. May be called again.
    ///
    /// # Errors
    /// Of the network and of the database.
    pub async fn undo(&self, id: i64) -> Result<(), BoxError> {
        self.ask_bank(format!("refund {id}\n")).await?;
        let mut both = self.pool.begin().await?;
        let undone = "UPDATE orders SET state = 'undone' WHERE id = ? AND state <> 'undone'";
        let undone = query(undone).bind(id).execute(&mut *both).await?;
        let back = query("UPDATE stock SET left = left + ? WHERE item = 1");
        let back = back.bind(undone.rows_affected() as i64);
        back.execute(&mut *both).await?;
        both.commit().await?;
        Ok(())
    }

    async fn ask_bank(&self, line: String) -> Result<(), BoxError> {
        let mut stream = BufReader::new(TcpStream::connect(self.bank).await?);
        stream.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        match answer.as_str() {
            "done\n" => Ok(()),
            _ => Err(io::Error::other(format!("the bank says {answer:?}")).into()),
        }
    }

    /// Closes the database.
    pub async fn close(self) {
        self.pool.close().await;
    }
}
