//! Connections over TCP.

use std::net::Shutdown;

use kinfolk_core::{Result, spawn};
use kinfolk_runtime::net::{TcpListener, TcpStream};

use super::tale::{At, Tale, carried, outcome, read, write};

/// Both sides of a connection.
pub async fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let (two, _) = listener.accept().await?;
    Ok((one, two))
}

/// A connection whose other side has closed and left a byte unread.
async fn reset() -> Result<TcpStream> {
    let (one, two) = pair().await?;
    one.write_all("unread").await.0?;
    carried().await?;
    drop(two);
    carried().await?;
    Ok(one)
}

pub async fn write_after_the_peer_closed(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    drop(two);
    carried().await?;
    let mut tale = Tale::new();
    tale.say("first", write(&one, "a").await);
    carried().await?;
    tale.say("second", write(&one, "b").await);
    tale.say("third", write(&one, "c").await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn read_after_the_peer_closed(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    drop(two);
    let mut tale = Tale::new();
    tale.say("read", read(&one, 8).await);
    tale.say("again", read(&one, 8).await);
    tale.say("write", write(&one, "a").await);
    carried().await?;
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn read_after_the_peer_left_bytes_unread(_: At) -> Result<Tale> {
    let one = reset().await?;
    let mut tale = Tale::new();
    tale.say("read", read(&one, 8).await);
    tale.say("again", read(&one, 8).await);
    tale.say("write", write(&one, "a").await);
    Ok(tale)
}

pub async fn write_after_the_peer_left_bytes_unread(_: At) -> Result<Tale> {
    let one = reset().await?;
    let mut tale = Tale::new();
    tale.say("write", write(&one, "a").await);
    tale.say("again", write(&one, "a").await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn answer_before_a_close_with_unread_bytes(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    one.write_all("a long request").await.0?;
    carried().await?;
    two.write_all("too long").await.0?;
    drop(two);
    carried().await?;
    let mut tale = Tale::new();
    tale.say("read", read(&one, 4).await);
    tale.say("read", read(&one, 8).await);
    tale.say("read", read(&one, 8).await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn half_closed_it_is_answered(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    one.write_all("question").await.0?;
    let mut tale = Tale::new();
    tale.add("shut", one.shutdown(Shutdown::Write).await);
    tale.say("read", read(&two, 16).await);
    tale.say("read", read(&two, 16).await);
    tale.say("answer", write(&two, "answer").await);
    drop(two);
    tale.say("read", read(&one, 16).await);
    tale.say("read", read(&one, 16).await);
    Ok(tale)
}

pub async fn half_closed_both_ways(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    let mut tale = Tale::new();
    tale.add("shut", one.shutdown(Shutdown::Write).await);
    tale.add("shut", two.shutdown(Shutdown::Write).await);
    tale.say("read", read(&one, 16).await);
    tale.say("read", read(&two, 16).await);
    Ok(tale)
}

pub async fn write_after_the_own_half_close(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    one.shutdown(Shutdown::Write).await?;
    let mut tale = Tale::new();
    tale.say("write", write(&one, "a").await);
    tale.say("the other side", write(&two, "b").await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn half_closed_twice(_: At) -> Result<Tale> {
    let (one, _two) = pair().await?;
    let mut tale = Tale::new();
    tale.add("shut", one.shutdown(Shutdown::Write).await);
    tale.add("again", one.shutdown(Shutdown::Write).await);
    Ok(tale)
}

pub async fn shut_for_reading_it_reads_the_end(_: At) -> Result<Tale> {
    let (one, _two) = pair().await?;
    let mut tale = Tale::new();
    tale.add("shut", one.shutdown(Shutdown::Read).await);
    tale.say("read", read(&one, 8).await);
    tale.say("write", write(&one, "a").await);
    Ok(tale)
}

pub async fn shut_for_reading_the_peer_still_writes(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    one.shutdown(Shutdown::Read).await?;
    let mut tale = Tale::new();
    tale.say("write", write(&two, "a").await);
    carried().await?;
    tale.say("write", write(&two, "b").await);
    carried().await?;
    tale.say("read", read(&one, 8).await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn bytes_that_came_before_the_shut(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    two.write_all("before").await.0?;
    carried().await?;
    one.shutdown(Shutdown::Read).await?;
    let mut tale = Tale::new();
    tale.say("read", read(&one, 8).await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn a_read_that_waits_is_ended_by_a_shut(_: At) -> Result<Tale> {
    let (one, _two) = pair().await?;
    let one = std::sync::Arc::new(one);
    let own = one.clone();
    let waits = spawn(async move { read(&*own, 8).await });
    carried().await?;
    one.shutdown(Shutdown::Read).await?;
    let mut tale = Tale::new();
    tale.say("read", waits.await?);
    Ok(tale)
}

pub async fn shut_after_a_reset(_: At) -> Result<Tale> {
    let one = reset().await?;
    let mut tale = Tale::new();
    tale.add("shut", one.shutdown(Shutdown::Write).await);
    tale.say("read", read(&one, 8).await);
    tale.add("shut", one.shutdown(Shutdown::Both).await);
    Ok(tale)
}

pub async fn shut_both_ways(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    let mut tale = Tale::new();
    tale.add("shut", one.shutdown(Shutdown::Both).await);
    tale.say("read", read(&one, 8).await);
    tale.say("write", write(&one, "a").await);
    tale.say("the other reads", read(&two, 8).await);
    tale.say("and writes", write(&two, "a").await);
    Ok(tale)
}

pub async fn addresses_after_the_peer_closed(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    let addr = two.local_addr()?;
    drop(two);
    carried().await?;
    let mut tale = Tale::new();
    tale.add("its address", one.peer_addr().map(|peer| peer == addr));
    Ok(tale)
}

pub async fn addresses_after_a_reset(_: At) -> Result<Tale> {
    let one = reset().await?;
    let mut tale = Tale::new();
    tale.add("its address", one.peer_addr().map(|_| ()));
    tale.add("the own", one.local_addr().map(|own| own.port() != 0));
    Ok(tale)
}

pub async fn nothing_is_written(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    let mut tale = Tale::new();
    tale.say("write", write(&one, "").await);
    tale.say("read", read(&two, 8).await);
    drop(two);
    carried().await?;
    tale.say("after the close", write(&one, "").await);
    Ok(tale)
}

pub async fn nothing_is_read_where_nothing_is(_: At) -> Result<Tale> {
    let (one, _two) = pair().await?;
    let mut tale = Tale::new();
    tale.say("read", read(&one, 0).await);
    Ok(tale)
}

pub async fn nothing_is_read_where_something_is(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    two.write_all("bytes").await.0?;
    carried().await?;
    let mut tale = Tale::new();
    tale.say("read", read(&one, 0).await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn several_pieces_arrive_in_order(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    let mut tale = Tale::new();
    let pieces = vec!["one", "", " two", " three"];
    tale.add("write", one.write_vectored(pieces).await.0);
    tale.say("read", read(&two, 64).await);
    Ok(tale)
}

pub async fn bytes_before_a_close_arrive(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    two.write_all("last words").await.0?;
    drop(two);
    carried().await?;
    let mut tale = Tale::new();
    tale.say("read", read(&one, 4).await);
    tale.say("read", read(&one, 64).await);
    tale.say("read", read(&one, 64).await);
    Ok(tale)
}

pub async fn a_large_write_is_taken_in_part(_: At) -> Result<Tale> {
    let (one, _two) = pair().await?;
    let all = 64 << 20;
    let (written, _) = one.write(vec![0; all]).await;
    let mut tale = Tale::new();
    tale.add("all of it", written.map(|bytes| bytes == all));
    Ok(tale)
}

pub async fn a_write_that_waits_hears_of_a_reset(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    let waits = spawn(async move {
        // The buffers of Linux grow while it waits.
        loop {
            let (written, _) = one.write(vec![0; 1 << 20]).await;
            if let Err(error) = written {
                return outcome::<()>(Err(error));
            }
        }
    });
    for _ in 0..10 {
        carried().await?;
    }
    drop(two);
    let mut tale = Tale::new();
    tale.say("write", waits.await?);
    Ok(tale)
}

pub async fn a_read_that_waits_hears_of_a_reset(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    one.write_all("unread").await.0?;
    let waits = spawn(async move { read(&one, 8).await });
    carried().await?;
    drop(two);
    let mut tale = Tale::new();
    tale.say("read", waits.await?);
    Ok(tale)
}

pub async fn a_read_that_waits_hears_of_the_end(_: At) -> Result<Tale> {
    let (one, two) = pair().await?;
    let waits = spawn(async move { (read(&one, 8).await, outcome(one.peer_addr().map(drop))) });
    carried().await?;
    drop(two);
    let mut tale = Tale::new();
    let (read, peer) = waits.await?;
    tale.say("read", read);
    tale.say("its address", peer);
    Ok(tale)
}
