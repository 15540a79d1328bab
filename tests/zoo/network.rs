//! The network: parts of messages, peers that leave, messages lost and doubled.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use kinfolk::testkit::io::{SimIo, machine_at};
use kinfolk::{Error, OrCancel, Result, Task, scope, sleep, spawn, timeout};
use kinfolk_runtime::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Mutex;

use crate::{MS, Run, SECOND, side_by_side};

zoo! {
    message_for_read test "one `read` is taken to be one message"
        says "a part was read";
    write_for_message test "one `write` is taken to send the whole message"
        says "unexpected end of file";
    line_for_chunk test "each chunk that arrives is taken to be whole lines"
        says "lines are torn";
    two_writers test "two tasks write messages to one connection, in two writes each"
        says "one message lies within the other";
    no_half_close test "a client waits for the answer to a request whose end it never marks"
        says "deadlock: main has not ended";
    written_is_delivered test "a write to a kept connection succeeded, so the request is taken to have arrived"
        says "both requests arrived";
    retry_repeats fault "a request whose answer was lost is sent again, and carried out twice"
        says "each is carried out once";
    connects_once fault "a connect that is refused is not tried again"
        says "ConnectionRefused";
    accepts_until_an_error fault "an accept that fails ends the server"
        says "ConnectionAborted";
    asks_once fault "a question over UDP is asked once, and its answer waited for"
        says "deadlock: main has not ended";
    doubled_message fault "a UDP message that comes twice is counted twice"
        says "each is counted once";
    overtaken_message fault "the UDP message that came last is taken for the newest"
        says "the newest is known";
    no_timeout partition "a peer behind a cut is waited for without a timeout"
        says "deadlock: main has not ended";
}

const HERE: &str = "127.0.0.1:0";

async fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(HERE).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let (two, _) = listener.accept().await?;
    Ok((one, two))
}

async fn message_for_read(bug: bool) -> Result<()> {
    let (one, two) = pair().await?;
    let sender = spawn(async move { Ok::<_, Error>(one.write_all("a message").await.0?) });
    let buf = vec![0; 9];
    let (read, buf) = if bug {
        let (read, buf) = two.read(buf).await;
        (read.map(|_| ()), buf)
    } else {
        two.read_exact(buf).await
    };
    read?;
    sender.await?;
    assert_eq!(buf, b"a message", "a part was read");
    Ok(())
}

async fn write_for_message(bug: bool) -> Result<()> {
    let (one, two) = pair().await?;
    let sender = spawn(async move {
        if bug {
            one.write("a message").await.0?;
        } else {
            one.write_all("a message").await.0?;
        }
        Ok::<_, Error>(())
    });
    let (read, buf) = two.read_exact(vec![0; 9]).await;
    sender.await?;
    read?;
    assert_eq!(buf, b"a message");
    Ok(())
}

async fn line_for_chunk(bug: bool) -> Result<()> {
    let (one, two) = pair().await?;
    let sender = spawn(async move { Ok::<_, Error>(one.write_all("one\ntwo\nthree\n").await.0?) });
    let (mut lines, mut rest) = (Vec::new(), Vec::new());
    loop {
        let (read, chunk) = two.read(Vec::with_capacity(64)).await;
        if read? == 0 {
            break;
        }
        rest.extend(chunk);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            lines.push(rest.drain(..=end).take(end).collect::<Vec<u8>>());
        }
        if bug && !rest.is_empty() {
            lines.push(std::mem::take(&mut rest));
        }
    }
    sender.await?;
    assert_eq!(lines, [&b"one"[..], b"two", b"three"], "lines are torn");
    Ok(())
}

async fn two_writers(bug: bool) -> Result<()> {
    let (one, two) = pair().await?;
    let (one, lock) = (Arc::new(one), Arc::new(Mutex::new(())));
    side_by_side(2, |n| {
        let (one, lock) = (one.clone(), lock.clone());
        async move {
            let held = match bug {
                true => None,
                false => Some(lock.lock().or_cancel().await?),
            };
            let (head, body) = if n == 0 { ("[a", "a]") } else { ("[b", "b]") };
            one.write_all(head).await.0?;
            one.write_all(body).await.0?;
            drop(held);
            Ok(())
        }
    })
    .await?;
    let (read, buf) = two.read_exact(vec![0; 8]).await;
    read?;
    let whole = buf == b"[aa][bb]" || buf == b"[bb][aa]";
    assert!(whole, "one message lies within the other: {buf:?}");
    Ok(())
}

async fn no_half_close(bug: bool) -> Result<()> {
    let (client, server) = pair().await?;
    let serves = spawn(async move {
        let mut asked = 0;
        loop {
            let (read, _) = server.read(Vec::with_capacity(64)).await;
            match read? {
                0 => break,
                more => asked += more,
            }
        }
        assert_eq!(asked, 5);
        server.write_all("fine").await.0?;
        Ok::<_, Error>(())
    });
    client.write_all("hello").await.0?;
    if !bug {
        client.shutdown(std::net::Shutdown::Write).await?;
    }
    client.read_exact([0; 4]).await.0?;
    serves.await
}

/// A server that goes on until it is cancelled: one request for each connection, which
/// `each` answers.
fn server(
    listener: TcpListener,
    each: impl Fn(u8) -> u8 + Clone + Send + Sync + 'static,
) -> Task<()> {
    spawn(scope(async move |s| {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                kinfolk::checkpoint().await?;
                continue;
            };
            let each = each.clone();
            s.launch(async move {
                let (read, buf) = stream.read_exact([0]).await;
                if read.is_ok() {
                    let _ = stream.write_all([each(buf[0])]).await.0;
                }
                Ok::<_, Error>(())
            });
        }
        #[allow(unreachable_code)]
        Ok::<_, Error>(())
    }))
}

async fn ask(stream: &TcpStream, request: u8) -> std::io::Result<u8> {
    stream.write_all([request]).await.0?;
    let (read, buf) = stream.read_exact([0]).await;
    read.map(|()| buf[0])
}

async fn ask_anew(addr: SocketAddr, request: u8) -> std::io::Result<u8> {
    ask(&TcpStream::connect(addr).await?, request).await
}

async fn ended(server: Task<()>) -> Result<()> {
    server.cancel("enough");
    assert!(server.outcome().await?.is_cancelled());
    Ok(())
}

async fn written_is_delivered(bug: bool) -> Result<()> {
    let listener = TcpListener::bind(HERE).await?;
    let addr = listener.local_addr()?;
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let server = server(listener, move |_| {
        counted.fetch_add(1, SeqCst);
        1
    });
    let kept = TcpStream::connect(addr).await?;
    ask(&kept, 1).await?;
    sleep(SECOND).await?;
    if bug {
        kept.write_all([2]).await.0?;
    } else if ask(&kept, 2).await.is_err() {
        ask_anew(addr, 2).await?;
    }
    sleep(SECOND).await?;
    ended(server).await?;
    assert_eq!(count.load(SeqCst), 2, "both requests arrived");
    Ok(())
}

fn retry_repeats(run: Run) {
    let bug = run.bug;
    run.simulate(SimIo::rough().resets(0.1), |_| async move {
        let listener = TcpListener::bind(HERE).await?;
        let addr = listener.local_addr()?;
        let seen = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let sum = Arc::new(AtomicU32::new(0));
        let total = sum.clone();
        let server = server(listener, move |id| {
            let new = seen.lock().unwrap().insert(id);
            if new || bug {
                total.fetch_add(1, SeqCst);
            }
            id
        });
        for id in 0..3 {
            while ask_anew(addr, id).await.is_err() {
                sleep(MS).await?;
            }
        }
        ended(server).await?;
        assert_eq!(sum.load(SeqCst), 3, "each is carried out once");
        Ok(())
    });
}

fn connects_once(run: Run) {
    let bug = run.bug;
    run.simulate(SimIo::rough().refused(0.2), |_| async move {
        let listener = TcpListener::bind(HERE).await?;
        let addr = listener.local_addr()?;
        let server = server(listener, |request| request);
        let answer = loop {
            match ask_anew(addr, 7).await {
                Err(_) if !bug => sleep(MS).await?,
                answer => break answer,
            }
        };
        ended(server).await?;
        assert_eq!(answer?, 7);
        Ok(())
    });
}

fn accepts_until_an_error(run: Run) {
    let bug = run.bug;
    run.simulate(SimIo::rough().aborted(0.2), |_| async move {
        let listener = TcpListener::bind(HERE).await?;
        let addr = listener.local_addr()?;
        let server = spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => _ = stream.write_all([7]).await.0,
                    Err(error) if bug => return Err(Error::from(error)),
                    Err(_) => kinfolk::checkpoint().await?,
                }
            }
        });
        for _ in 0..3 {
            while !bug || !server.is_ended() {
                let stream = TcpStream::connect(addr).await?;
                if stream.read_exact([0]).await.0.is_ok() {
                    break;
                }
            }
        }
        ended(server).await
    });
}

/// A server over UDP that answers each message with itself.
async fn echo() -> Result<(SocketAddr, Task<()>)> {
    let socket = UdpSocket::bind(HERE).await?;
    let addr = socket.local_addr()?;
    let serves = spawn(async move {
        loop {
            let (asked, buf) = socket.recv_from([0]).await;
            socket.send_to(buf, asked?.1).await.0?;
        }
        #[allow(unreachable_code)]
        Ok::<_, Error>(())
    });
    Ok((addr, serves))
}

fn asks_once(run: Run) {
    let bug = run.bug;
    run.simulate(SimIo::rough().lost(0.1), |_| async move {
        let (addr, server) = echo().await?;
        let client = UdpSocket::bind(HERE).await?;
        loop {
            client.send_to([7], addr).await.0?;
            let answer = async { Ok::<_, Error>(client.recv([0]).await.0?) };
            if bug {
                answer.await?;
                break;
            }
            if timeout(SECOND, answer).await.is_ok() {
                break;
            }
        }
        ended(server).await
    });
}

/// Sends these over UDP; what arrives within a second of silence.
async fn sent_over_udp(numbers: std::ops::Range<u8>) -> Result<Vec<u8>> {
    let (one, two) = (UdpSocket::bind(HERE).await?, UdpSocket::bind(HERE).await?);
    for number in numbers {
        one.send_to([number], two.local_addr()?).await.0?;
    }
    let mut got = Vec::new();
    while let Ok(Ok(number)) = timeout(SECOND, async {
        let (received, buf) = two.recv([0]).await;
        Ok::<_, Error>(received.map(|_| buf[0]))
    })
    .await
    {
        got.push(number);
    }
    Ok(got)
}

fn doubled_message(run: Run) {
    let bug = run.bug;
    run.simulate(SimIo::rough().doubled(0.1), |_| async move {
        let (mut count, mut seen) = (0, BTreeSet::new());
        for number in sent_over_udp(0..5).await? {
            if seen.insert(number) || bug {
                count += 1;
            }
        }
        assert_eq!(count, 5, "each is counted once");
        Ok(())
    });
}

fn overtaken_message(run: Run) {
    let bug = run.bug;
    run.simulate(SimIo::rough().overtaken(0.2, 5 * MS), |_| async move {
        let mut newest = 0;
        for number in sent_over_udp(1..6).await? {
            if number > newest || bug {
                newest = number;
            }
        }
        assert_eq!(newest, 5, "the newest is known");
        Ok(())
    });
}

fn no_timeout(run: Run) {
    let (bug, seed) = (run.bug, run.seed);
    let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    run.simulate(SimIo::rough(), |net| async move {
        net.latency(here, there, MS);
        let listener = machine_at(there, TcpListener::bind("0.0.0.0:80")).await?;
        let server = spawn(machine_at(there, async move {
            loop {
                let (stream, _) = listener.accept().await?;
                let _ = stream.write_all([7]).await.0;
            }
            #[allow(unreachable_code)]
            Ok::<_, Error>(())
        }));
        let stream = machine_at(here, TcpStream::connect("10.0.0.2:80")).await?;
        let cut = spawn(async move {
            sleep(MS * (seed % 4) as u32).await?;
            net.partition(here, there);
            Ok::<_, Error>(())
        });
        let answer = async { Ok::<_, Error>(stream.read_exact([0]).await.0?) };
        if bug {
            answer.await?;
        } else {
            // With or without an answer it goes on.
            let _ = timeout(SECOND, answer).await;
        }
        cut.await?;
        ended(server).await
    });
}
