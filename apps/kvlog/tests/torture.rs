//! The server as a process: many clients that lose patience and hang up, `kill -9`
//! again and again, a torn end now and then; and the log is in order each time.
//!
//! `KVLOG_ROUNDS` and `KVLOG_SEED` say how often, and which.

mod book;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use book::{Book, Fate, replay};
use kinfolk::net::TcpStream;
use kinfolk::process::{Child, Command, Stdio};
use kinfolk::testkit::Rng;
use kinfolk::{Error, OrFail, Result, Runtime, scope, sleep, timeout};
use kvlog::record::Record;

const CLIENTS: usize = 16;

/// A round that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn torture() -> Result<()> {
    let since = SystemTime::UNIX_EPOCH.elapsed().or_fail()?;
    let seed = setting("KVLOG_SEED").unwrap_or(since.as_micros() as u64);
    let rounds = setting("KVLOG_ROUNDS").unwrap_or(8);
    println!("KVLOG_SEED={seed} KVLOG_ROUNDS={rounds}");
    let dir = std::env::temp_dir().join(format!("kvlog-{}", std::process::id()));
    let (mut rng, mut book) = (Rng::new(seed), Book::default());
    Runtime::new()?.block_on(async {
        for number in 0..rounds {
            if number > 0 && number % 20 == 0 {
                book = Book::default();
                std::fs::remove_dir_all(&dir)?;
            }
            timeout(LONGEST, round(number, &dir, &book, &mut rng)).await?;
        }
        Ok::<_, Error>(())
    })?;
    assert!(book.count(Fate::Written) > 0, "nobody was answered");
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Starts the server, lets the clients loose, kills it, and looks at the log.
async fn round(number: u64, dir: &Path, book: &Book, rng: &mut Rng) -> Result<()> {
    let log = dir.join(kvlog::log::LOG);
    let before = std::fs::read(&log).unwrap_or_default();
    let (mut server, addr) = start(dir).await?;
    serves(addr, replay(&before).0).await?;
    let gently = number % 4 == 3;
    scope(async |s| {
        for _ in 0..CLIENTS {
            let rng = Rng::new(rng.next_u64());
            s.launch(client(addr, book.clone(), rng));
        }
        sleep(Duration::from_millis(20 + rng.below(500) as u64)).await?;
        server.signal(if gently { libc::SIGTERM } else { libc::SIGKILL })?;
        let ended = server.wait().await?;
        if gently {
            assert_eq!(ended.code(), Some(0), "{ended}");
        }
        s.cancel("the server is dead");
        Ok(())
    })
    .await?;

    let mut bytes = std::fs::read(&log)?;
    let there = book.check(&bytes).len();
    assert!(!gently || replay(&bytes).1 == bytes.len(), "a torn end");
    let [written, refused, unknown] =
        [Fate::Written, Fate::NotWritten, Fate::Unknown].map(|fate| book.count(fate));
    let how = if gently { "stopped" } else { "killed" };
    println!("{how:7} {there} there: {written} known, {refused} refused, {unknown} unknown");
    // The power goes in the middle of a write.
    if rng.chance(0.5) {
        let whole = bytes.len();
        let torn = Book::default().invent(rng);
        let mut batch = Vec::new();
        torn.append_to(&mut batch, whole as u64);
        bytes.extend(batch);
        bytes.truncate(whole + rng.below(bytes.len() - whole));
        bytes.extend(vec![0; rng.below(20)]);
        std::fs::write(&log, bytes)?;
    }
    Ok(())
}

/// The server, once it listens.
async fn start(dir: &Path) -> Result<(Child, SocketAddr)> {
    let command = Command::new(env!("CARGO_BIN_EXE_kvlog"))
        .arg(dir)
        .arg("127.0.0.1:0")
        .stdout(Stdio::Piped)
        .stderr(Stdio::Null);
    let child = command.spawn().await?;
    let stdout = child.stdout.as_ref().expect("piped");
    let mut words = String::new();
    while !words.ends_with('\n') {
        let (read, bytes) = stdout.read(Vec::with_capacity(100)).await;
        assert_ne!(read?, 0, "the server has ended: {words}");
        words += &String::from_utf8(bytes).or_fail()?;
    }
    let addr = words.trim().strip_prefix("listening on ");
    let addr = addr.expect("an address").parse().or_fail()?;
    Ok((child, addr))
}

/// What the server says is what is in the log.
async fn serves(addr: SocketAddr, records: Vec<Record>) -> Result<()> {
    let last: HashMap<_, _> = records.into_iter().map(|r| (r.key, r.value)).collect();
    for (key, value) in last {
        let stream = TcpStream::connect(addr).await?;
        let head = format!("GET /{key} HTTP/1.1\r\nhost: kvlog\r\nconnection: close\r\n\r\n");
        stream.write_all(head).await.0?;
        let mut answer = Vec::new();
        loop {
            let (read, part) = stream.read(Vec::with_capacity(4096)).await;
            match read? {
                0 => break,
                _ => answer.extend(part),
            }
        }
        match value {
            Some(value) => assert!(answer.ends_with(&value), "{key} was something else"),
            None => assert!(answer.starts_with(b"HTTP/1.1 404"), "{key} was deleted"),
        }
    }
    Ok(())
}

/// Makes changes until it is told to stop.
async fn client(addr: SocketAddr, book: Book, mut rng: Rng) -> Result<()> {
    loop {
        let record = book.invent(&mut rng);
        let mut in_doubt = false;
        loop {
            let fate = attempt(addr, &record, &mut rng).await?;
            match fate {
                Fate::Unknown => {
                    in_doubt = true;
                    sleep(Duration::from_millis(1)).await?;
                }
                // An earlier one may have been heard.
                Fate::NotWritten if in_doubt => {}
                fate => book.note(&record.id, fate),
            }
            if fate == Fate::Written || rng.chance(0.3) {
                break;
            }
            book.note(&record.id, Fate::Unknown);
        }
    }
}

/// Asks for a change, with more or less patience.
async fn attempt(addr: SocketAddr, record: &Record, rng: &mut Rng) -> Result<Fate> {
    let Record { id, key, value } = record;
    let (method, value) = match value {
        Some(value) => ("PUT", &value[..]),
        None => ("DELETE", &[][..]),
    };
    let within = if rng.chance(0.3) { rng.below(6) } else { 9999 };
    let len = value.len();
    let mut request = format!(
        "{method} /{key}?id={id}&within={within} HTTP/1.1\r\nhost: kvlog\r\n\
         content-length: {len}\r\nconnection: close\r\n\r\n"
    )
    .into_bytes();
    request.extend(value);
    let hangs_up = rng.chance(0.1);
    if hangs_up && rng.chance(0.5) {
        request.truncate(rng.below(request.len()));
    }
    let patience = if rng.chance(0.2) {
        rng.below(10)
    } else {
        20_000
    };
    let exchange = async {
        let stream = TcpStream::connect(addr).await?;
        stream.write_all(request).await.0?;
        if hangs_up {
            return Ok(Fate::Unknown);
        }
        let (read, status) = stream.read_exact([0; 12]).await;
        read?;
        Ok::<_, Error>(match &status {
            b"HTTP/1.1 200" => Fate::Written,
            b"HTTP/1.1 504" => Fate::NotWritten,
            _ => panic!("{}", String::from_utf8_lossy(&status)),
        })
    };
    let limit = Duration::from_millis(patience as u64);
    match timeout(limit, exchange).await {
        Err(error) if error.is_cancelled() => Err(error),
        Err(_lost) => Ok(Fate::Unknown),
        Ok(fate) => Ok(fate),
    }
}
