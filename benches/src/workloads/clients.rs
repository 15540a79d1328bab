//! The clients of a server that is measured: in a process of their own, the same
//! for all.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::measure::per;

/// The first word of the command line of the clients' process.
pub const CLIENTS: &str = "--clients";

/// What the body of an answer in HTTP is.
pub const HELLO: &str = "hello";

/// What a message is, and its answer.
#[derive(Clone, Copy)]
pub enum Talk {
    /// So many bytes, which come back.
    Echo(usize),
    /// A request, whose answer is [`HELLO`].
    Http,
}

impl Talk {
    fn message(self) -> Vec<u8> {
        match self {
            Talk::Echo(size) => vec![7; size],
            Talk::Http => b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".into(),
        }
    }

    async fn read_answer(
        self,
        stream: &mut tokio::net::TcpStream,
        back: &mut [u8],
    ) -> io::Result<()> {
        match self {
            Talk::Echo(size) => stream.read_exact(&mut back[..size]).await.map(drop),
            Talk::Http => {
                let mut len = 0;
                while !back[..len].ends_with(HELLO.as_bytes()) {
                    match stream.read(&mut back[len..]).await? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        more => len += more,
                    }
                }
                Ok(())
            }
        }
    }
}

/// How many connections, what they say, how often in all.
#[derive(Clone, Copy)]
pub struct Load {
    pub connections: usize,
    pub talk: Talk,
    pub messages: u64,
}

impl Load {
    pub fn new(connections: usize, talk: Talk, messages: u64) -> Load {
        Load {
            connections,
            talk,
            // A test wants to see that it works.
            messages: match cfg!(test) {
                true => connections as u64,
                false => messages,
            },
        }
    }

    /// As the process of the clients gets it.
    fn words(self) -> [String; 3] {
        let size = match self.talk {
            Talk::Echo(size) => size.to_string(),
            Talk::Http => "http".into(),
        };
        [
            self.connections.to_string(),
            size,
            self.messages.to_string(),
        ]
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<Load, Box<dyn Error>> {
        let mut word = || words.next().ok_or("connections, what they say, how often");
        Ok(Load {
            connections: word()?.parse()?,
            talk: match word()?.as_str() {
                "http" => Talk::Http,
                size => Talk::Echo(size.parse()?),
            },
            messages: word()?.parse()?,
        })
    }
}

/// Processor time of this process so far.
fn cpu() -> Duration {
    // SAFETY: all zeroes is a value of it, and it is a place for the answer.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Clients that were let loose on a server; what they say is collected once that
/// is done.
#[cfg(not(test))]
struct Clients(std::process::Child);

#[cfg(not(test))]
impl Clients {
    fn start(addr: SocketAddr, load: Load) -> Clients {
        let this = std::env::current_exe().expect("a program has a path");
        let child = std::process::Command::new(this)
            .args([CLIENTS, &addr.to_string()])
            .args(load.words())
            .stdout(std::process::Stdio::piped())
            .spawn();
        Clients(child.expect("the clients start"))
    }

    fn said(self) -> String {
        let output = self.0.wait_with_output().expect("the clients end");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A test is another program: its clients are a thread.
#[cfg(test)]
struct Clients(std::thread::JoinHandle<String>);

#[cfg(test)]
impl Clients {
    fn start(addr: SocketAddr, load: Load) -> Clients {
        let run = move || run_clients(addr, load).expect("the clients end");
        Clients(std::thread::spawn(run))
    }

    fn said(self) -> String {
        self.0.join().expect("the clients end")
    }
}

/// What a round comes to: the server's time and what the clients say.
pub struct Round {
    load: Load,
    cpu: Duration,
    clients: Clients,
}

impl Round {
    pub fn begin(addr: SocketAddr, load: Load) -> Round {
        Round {
            load,
            clients: Clients::start(addr, load),
            cpu: cpu(),
        }
    }

    pub fn end(self) -> Vec<f64> {
        let spent = cpu() - self.cpu;
        let said = self.clients.said();
        let mut numbers = vec![per(spent, self.load.messages)];
        numbers.extend(
            said.split_whitespace()
                .filter_map(|word| word.parse::<f64>().ok()),
        );
        assert_eq!(numbers.len(), 4, "the clients said {said:?}");
        numbers
    }
}

/// The process of the clients.
pub fn child(mut words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let addr: SocketAddr = words.next().ok_or("an address")?.parse()?;
    println!("{}", run_clients(addr, Load::parse(words)?)?);
    Ok(())
}

/// Everything that the clients do; the time for each message, and the times that
/// half of them and all but one in a hundred took at most.
fn run_clients(addr: SocketAddr, load: Load) -> io::Result<String> {
    let Load {
        connections,
        talk,
        messages,
    } = load;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (wall, mut times) = runtime.block_on(async move {
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = tokio::net::TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for mut stream in streams {
            tasks.spawn(async move {
                let message = talk.message();
                let mut back = vec![0; message.len().max(1024)];
                let mut times = Vec::new();
                for _ in 0..messages / connections as u64 {
                    let begin = Instant::now();
                    stream.write_all(&message).await?;
                    talk.read_answer(&mut stream, &mut back).await?;
                    times.push(begin.elapsed());
                }
                Ok::<_, io::Error>(times)
            });
        }
        let mut times = Vec::new();
        while let Some(done) = tasks.join_next().await {
            times.extend(done.expect("no panic")?);
        }
        Ok::<_, io::Error>((start.elapsed(), times))
    })?;
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos();
    Ok(format!("{} {} {}", per(wall, messages), at(0.5), at(0.99)))
}

#[test]
fn the_clients_get_the_load_that_was_meant() {
    for talk in [Talk::Echo(64), Talk::Http] {
        let words = Load::new(7, talk, 70).words();
        let load = Load::parse(words.clone().into_iter()).expect("a load");
        assert_eq!(load.words(), words);
        assert_eq!(load.connections, 7);
    }
    assert!(Load::parse(["7".to_owned()].into_iter()).is_err());
}
