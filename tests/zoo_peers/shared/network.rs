//! The network: a server and a client, each on a machine of its own.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::peer::{self, ANYWHERE, SERVER, TcpListener, TcpStream, UdpSocket};
use crate::shared::{How, MS, Result, Run, SECOND, Two};

zoo! {
    two message_for_read;
    two write_for_message;
    two line_for_chunk;
    two two_writers;
    either no_half_close = match peer::HALF_CLOSE {
        None => How::Two(no_half_close),
        Some(why) => How::Cannot(why),
    };
    two written_is_delivered;
    two retry_repeats;
    two connects_once;
    two accepts_until_an_error;
    two asks_once;
    two doubled_message;
    two overtaken_message;
    two no_timeout;
}

/// A server and a client without faults.
fn fair<S, C>(server: S, client: C) -> Two
where
    S: Future<Output = Result> + Send + 'static,
    C: Future<Output = Result> + Send + 'static,
{
    with(0.0, server, client)
}

/// As often as `loss` says a message is lost.
fn with<S, C>(loss: f64, server: S, client: C) -> Two
where
    S: Future<Output = Result> + Send + 'static,
    C: Future<Output = Result> + Send + 'static,
{
    Two {
        loss,
        server: Box::pin(server),
        client: Box::pin(async {
            sleep(10 * MS).await; // the server listens
            client.await
        }),
    }
}

/// The one connection of a server.
async fn accepted() -> Result<TcpStream> {
    Ok(TcpListener::bind(ANYWHERE).await?.accept().await?.0)
}

/// The server sends `text` and hangs up later.
async fn says(text: &'static [u8]) -> Result {
    let mut stream = accepted().await?;
    stream.write_all(text).await?;
    stream.flush().await?;
    sleep(SECOND).await;
    Ok(())
}

fn message_for_read(run: Run) -> Two {
    fair(says(b"a message"), async move {
        let mut stream = TcpStream::connect(SERVER).await?;
        let mut buf = [0; 9];
        match run.bug {
            true => _ = stream.read(&mut buf).await?,
            false => _ = stream.read_exact(&mut buf).await?,
        }
        assert_eq!(buf, *b"a message");
        Ok(())
    })
}

fn write_for_message(run: Run) -> Two {
    let server = async move {
        let mut stream = accepted().await?;
        match run.bug {
            true => _ = stream.write(b"a message").await?,
            false => stream.write_all(b"a message").await?,
        }
        stream.flush().await?;
        sleep(SECOND).await;
        Ok(())
    };
    fair(server, async {
        let mut stream = TcpStream::connect(SERVER).await?;
        let mut buf = [0; 9];
        stream.read_exact(&mut buf).await?;
        assert_eq!(buf, *b"a message");
        Ok(())
    })
}

fn line_for_chunk(run: Run) -> Two {
    fair(says(b"one\ntwo\nthree\n"), async move {
        let mut stream = TcpStream::connect(SERVER).await?;
        let (mut lines, mut rest) = (Vec::new(), Vec::new());
        while stream.read_buf(&mut rest).await? > 0 {
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                lines.push(rest.drain(..=end).take(end).collect::<Vec<u8>>());
            }
            if run.bug && !rest.is_empty() {
                lines.push(std::mem::take(&mut rest));
            }
        }
        assert_eq!(lines, [&b"one"[..], b"two", b"three"]);
        Ok(())
    })
}

fn two_writers(run: Run) -> Two {
    let server = async move {
        let (_read, write) = tokio::io::split(accepted().await?);
        let (write, whole) = (Arc::new(Mutex::new(write)), Arc::new(Mutex::new(())));
        crate::shared::side_by_side(2, |n| {
            let (write, whole) = (write.clone(), whole.clone());
            async move {
                let held = match run.bug {
                    true => None,
                    false => Some(whole.lock().await),
                };
                let parts = if n == 0 { ["[a", "a]"] } else { ["[b", "b]"] };
                for part in parts {
                    let mut write = write.lock().await;
                    write.write_all(part.as_bytes()).await?;
                    write.flush().await?;
                }
                drop(held);
                Ok(())
            }
        })
        .await?;
        sleep(SECOND).await;
        Ok(())
    };
    fair(server, async {
        let mut buf = [0; 8];
        let mut stream = TcpStream::connect(SERVER).await?;
        stream.read_exact(&mut buf).await?;
        assert!(buf == *b"[aa][bb]" || buf == *b"[bb][aa]", "{buf:?}");
        Ok(())
    })
}

fn no_half_close(run: Run) -> Two {
    let server = async {
        let mut stream = accepted().await?;
        let mut asked = Vec::new();
        stream.read_to_end(&mut asked).await?;
        assert_eq!(asked, b"hello");
        stream.write_all(b"fine").await?;
        stream.flush().await?;
        sleep(SECOND).await;
        Ok(())
    };
    fair(server, async move {
        let mut stream = TcpStream::connect(SERVER).await?;
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        if !run.bug {
            stream.shutdown().await?;
        }
        stream.read_exact(&mut [0; 4]).await?;
        Ok(())
    })
}

/// A server that goes on for ever: one request for each connection, which `each` answers.
async fn server(each: impl Fn(u8) -> u8 + Clone + Send + Sync + 'static) -> Result {
    let listener = TcpListener::bind(ANYWHERE).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let each = each.clone();
        tokio::spawn(async move {
            if let Ok(request) = stream.read_u8().await {
                let _ = stream.write_all(&[each(request)]).await;
                let _ = stream.flush().await;
                sleep(100 * MS).await;
            }
        });
    }
}

async fn ask(stream: &mut TcpStream, request: u8) -> io::Result<u8> {
    stream.write_all(&[request]).await?;
    stream.flush().await?;
    stream.read_u8().await
}

async fn ask_anew(request: u8) -> io::Result<u8> {
    ask(&mut TcpStream::connect(SERVER).await?, request).await
}

fn written_is_delivered(run: Run) -> Two {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let server = server(move |_| {
        counted.fetch_add(1, SeqCst);
        1
    });
    fair(server, async move {
        let mut kept = TcpStream::connect(SERVER).await?;
        ask(&mut kept, 1).await?;
        sleep(SECOND).await;
        if run.bug {
            kept.write_all(&[2]).await?;
            kept.flush().await?;
        } else if ask(&mut kept, 2).await.is_err() {
            ask_anew(2).await?;
        }
        sleep(SECOND).await;
        assert_eq!(count.load(SeqCst), 2, "both requests arrived");
        Ok(())
    })
}

fn retry_repeats(run: Run) -> Two {
    let seen = std::sync::Mutex::new(BTreeSet::new());
    let seen = Arc::new(seen);
    let sum = Arc::new(AtomicU32::new(0));
    let total = sum.clone();
    let server = server(move |id| {
        let new = seen.lock().unwrap().insert(id);
        if new || run.bug {
            total.fetch_add(1, SeqCst);
        }
        id
    });
    with(0.1, server, async move {
        let cut = tokio::spawn(async move {
            sleep(MS * run.draw(0, 100) as u32).await;
            peer::cut();
            sleep(2 * SECOND).await;
            peer::heal();
        });
        for id in 0..3 {
            while !matches!(timeout(SECOND, ask_anew(id)).await, Ok(Ok(_))) {
                sleep(MS).await;
            }
        }
        cut.await?;
        sleep(5 * SECOND).await;
        assert_eq!(sum.load(SeqCst), 3);
        Ok(())
    })
}

fn connects_once(run: Run) -> Two {
    let server = server(|request| request);
    with(0.2, server, async move {
        let answer = loop {
            match timeout(SECOND, ask_anew(7)).await {
                Ok(Ok(answer)) => break answer,
                failed if run.bug => break failed??,
                _ => _ = sleep(MS).await,
            }
        };
        assert_eq!(answer, 7);
        Ok(())
    })
}

fn accepts_until_an_error(run: Run) -> Two {
    let server = async move {
        peer::enable_buggify();
        let listener = TcpListener::bind(ANYWHERE).await?;
        loop {
            let accepted = match peer::buggify() {
                true => Err(io::ErrorKind::ConnectionAborted.into()),
                false => listener.accept().await,
            };
            match accepted {
                Ok((mut stream, _)) => {
                    let _ = stream.write_all(&[7]).await;
                    let _ = stream.flush().await;
                }
                Err(error) if run.bug => return Err(error.into()),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    with(0.1, server, async {
        for _ in 0..3 {
            let one = async || TcpStream::connect(SERVER).await?.read_u8().await;
            while !matches!(timeout(SECOND, one()).await, Ok(Ok(7))) {
                sleep(MS).await;
            }
        }
        Ok(())
    })
}

fn asks_once(run: Run) -> Two {
    let server = async {
        let socket = UdpSocket::bind(ANYWHERE).await?;
        let mut buf = [0];
        loop {
            let (_, from) = socket.recv_from(&mut buf).await?;
            peer::send_to(&socket, &buf, from).await?;
        }
    };
    with(0.1, server, async move {
        let socket = UdpSocket::bind(ANYWHERE).await?;
        let mut buf = [0];
        loop {
            peer::send_to(&socket, &[7], SERVER).await?;
            let answer = socket.recv_from(&mut buf);
            if run.bug {
                answer.await?;
                return Ok(());
            }
            if timeout(SECOND, answer).await.is_ok() {
                return Ok(());
            }
        }
    })
}

/// A client sends these over UDP; a server checks what has come after a second of silence.
fn sent_over_udp(numbers: std::ops::Range<u8>, check: impl Fn(Vec<u8>) + Send + 'static) -> Two {
    let server = async move {
        let socket = UdpSocket::bind(ANYWHERE).await?;
        let (mut got, mut buf) = (Vec::new(), [0]);
        while timeout(SECOND, socket.recv_from(&mut buf)).await.is_ok() {
            got.push(buf[0]);
        }
        check(got);
        Ok(())
    };
    fair(server, async move {
        let socket = UdpSocket::bind(ANYWHERE).await?;
        for number in numbers {
            peer::send_to(&socket, &[number], SERVER).await?;
        }
        sleep(3 * SECOND).await;
        Ok(())
    })
}

fn doubled_message(run: Run) -> Two {
    sent_over_udp(0..5, move |got| {
        let mut seen = BTreeSet::new();
        let counts = |number: &&u8| seen.insert(**number) || run.bug;
        assert_eq!(got.iter().filter(counts).count(), 5);
    })
}

fn overtaken_message(run: Run) -> Two {
    sent_over_udp(1..6, move |got| {
        let mut newest = 0;
        for number in got {
            if number > newest || run.bug {
                newest = number;
            }
        }
        assert_eq!(newest, 5);
    })
}

fn no_timeout(run: Run) -> Two {
    let server = async {
        let listener = TcpListener::bind(ANYWHERE).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            sleep(2 * MS).await; // looks for the answer
            let _ = stream.write_all(&[7]).await;
            let _ = stream.flush().await;
            sleep(100 * MS).await;
        }
    };
    fair(server, async move {
        let mut stream = TcpStream::connect(SERVER).await?;
        let cut = tokio::spawn(async move {
            sleep(MS * run.draw(0, 4) as u32).await;
            peer::cut();
        });
        let answer = stream.read_u8();
        if run.bug {
            answer.await?;
        } else {
            // With or without an answer it goes on.
            let _ = timeout(SECOND, answer).await;
        }
        cut.await?;
        Ok(())
    })
}
