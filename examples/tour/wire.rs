//! What both servers share: the clients, the wire, the store, and the books.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk::testkit::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

pub const CLIENTS: usize = 40;
const RECORDS: usize = 40;
const SEED: u64 = 2026;

/// What was taken off the wire, and what became of it.
#[derive(Default)]
pub struct Books {
    /// Bytes taken off the wire that belong to whole records, or were handed
    /// back as the rest of one.
    pub accounted: AtomicU64,
    /// Writes to the store that have not returned.
    writing: AtomicU64,
    stored: Mutex<HashSet<Record>>,
    clients: Mutex<Vec<Arc<ClientBooks>>>,
}

/// One client's side of the books.
#[derive(Default)]
pub struct ClientBooks {
    /// Bytes of this client that the server took off the wire.
    taken: AtomicU64,
    /// The records it sent, whole ones only.
    sent: Mutex<Vec<Record>>,
}

impl ClientBooks {
    /// The rest of a record is about to be sent.
    pub fn sends(&self, record: &[u8]) {
        let mut sent = self.sent.lock().expect("nobody panics with it");
        sent.push(record.to_vec());
    }
}

/// A record as it stands in the store.
pub type Record = Vec<u8>;

/// What was lost when the server said that it had stopped.
pub struct Lost {
    items: usize,
    bytes: u64,
    orphans: u64,
    of: usize,
}

impl Lost {
    #[cfg(test)]
    pub fn is_nothing(&self) -> bool {
        (self.items, self.bytes, self.orphans) == (0, 0, 0)
    }
}

impl Books {
    /// A record is lost if the server took all of it off the wire, and it is
    /// not in the store as it was sent.
    pub fn lost(&self) -> Lost {
        let stored = self.stored.lock().expect("nobody panics with it");
        let mut lost = Lost {
            items: 0,
            bytes: 0,
            orphans: self.writing.load(SeqCst),
            of: 0,
        };
        for client in self.clients.lock().expect("nobody panics with it").iter() {
            let taken = client.taken.load(SeqCst);
            lost.bytes += taken;
            let mut end = 0;
            for record in client.sent.lock().expect("nobody panics with it").iter() {
                end += 1 + record.len() as u64;
                if end <= taken {
                    lost.of += 1;
                    lost.items += usize::from(!stored.contains(record));
                }
            }
        }
        lost.bytes -= self.accounted.load(SeqCst);
        lost
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = format!("{} of {}", self.items, self.of);
        write!(f, "{items:>14}{:>12}{:>10}", self.bytes, self.orphans)
    }
}

/// A store that takes its time: a millisecond for each record.
#[derive(Clone)]
pub struct Store {
    books: Arc<Books>,
    sleep: fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Store {
    pub fn new(books: &Arc<Books>) -> Store {
        Store {
            books: books.clone(),
            sleep: |time| Box::pin(tokio::time::sleep(time)),
        }
    }

    /// One for the simulation, whose time is virtual.
    #[cfg(test)]
    pub fn simulated(books: &Arc<Books>) -> Store {
        Store {
            books: books.clone(),
            sleep: |time| Box::pin(async move { kinfolk::sleep(time).await.expect("shielded") }),
        }
    }

    pub async fn write(&self, batch: Vec<Record>) {
        self.books.writing.fetch_add(1, SeqCst);
        (self.sleep)(Duration::from_millis(batch.len() as u64)).await;
        let mut stored = self.books.stored.lock().expect("nobody panics with it");
        stored.extend(batch);
        self.books.writing.fetch_sub(1, SeqCst);
    }
}

/// The server's end of a connection.
pub struct Conn {
    pub stream: DuplexStream,
    pub books: Arc<Books>,
    client: Arc<ClientBooks>,
    /// Bytes of a record that is not whole yet.
    pub rest: Vec<u8>,
}

impl Conn {
    /// A new one, with the client's end of it.
    pub fn open(books: &Arc<Books>) -> (Conn, DuplexStream, Arc<ClientBooks>) {
        let (stream, theirs) = duplex(256);
        let client = Arc::new(ClientBooks::default());
        let mut clients = books.clients.lock().expect("nobody panics with it");
        clients.push(client.clone());
        let conn = Conn {
            stream,
            books: books.clone(),
            client: client.clone(),
            rest: Vec::new(),
        };
        (conn, theirs, client)
    }

    /// Reads one record the obvious way: a length, then as many bytes.
    pub async fn read_record(&mut self) -> std::io::Result<Vec<u8>> {
        let length = self.stream.read_u8().await?;
        self.took(1);
        let mut record = vec![0; length as usize];
        let mut at = 0;
        while at < record.len() {
            let n = self.stream.read(&mut record[at..]).await?;
            if n == 0 {
                self.books.accounted.fetch_add(at as u64 + 1, SeqCst);
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.took(n);
            at += n;
        }
        self.whole(&record);
        Ok(record)
    }

    /// Bytes came off the wire.
    pub fn took(&self, bytes: usize) {
        self.client.taken.fetch_add(bytes as u64, SeqCst);
    }

    /// A whole record came in.
    pub fn whole(&self, record: &[u8]) {
        self.books
            .accounted
            .fetch_add(record.len() as u64 + 1, SeqCst);
    }
}

/// One client: records in two halves, a pause between them; some hang up in
/// the middle of one.
async fn client(mut stream: DuplexStream, mut rng: Rng, books: Arc<ClientBooks>) {
    let hangs_up_after = rng.below(2 * RECORDS);
    for n in 0..RECORDS {
        let length = 16 + rng.below(100);
        if stream.write_u8(length as u8).await.is_err() {
            return;
        }
        let payload: Record = (0..length).map(|_| rng.below(256) as u8).collect();
        let half = length / 2;
        if stream.write_all(&payload[..half]).await.is_err() || n == hangs_up_after {
            return;
        }
        tokio::time::sleep(Duration::from_micros(rng.below(3000) as u64)).await;
        books.sends(&payload);
        if stream.write_all(&payload[half..]).await.is_err() {
            return;
        }
    }
    // Stays connected, as clients do.
    tokio::time::sleep(Duration::from_millis(400)).await;
}

/// Connections whose clients have begun to send, with a moment at which each is
/// kicked.
pub fn connect(books: &Arc<Books>) -> Vec<(Conn, Duration)> {
    let mut rng = Rng::new(SEED);
    (0..CLIENTS)
        .map(|_| {
            let (conn, theirs, client_books) = Conn::open(books);
            let kicked = Duration::from_millis(20 + rng.below(120) as u64);
            tokio::spawn(client(theirs, Rng::new(rng.next_u64()), client_books));
            (conn, kicked)
        })
        .collect()
}

/// Runs a server and looks into the books when it says that it has stopped.
pub async fn measure<F>(serve: impl FnOnce(Vec<(Conn, Duration)>, Store) -> F) -> Lost
where
    F: Future<Output = ()>,
{
    let books = Arc::new(Books::default());
    serve(connect(&books), Store::new(&books)).await;
    books.lost()
}
