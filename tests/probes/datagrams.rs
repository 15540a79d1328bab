//! Messages over UDP.

use std::io;
use std::net::SocketAddr;

use kinfolk_core::Result;
use kinfolk_runtime::net::UdpSocket;

use super::tale::{At, Tale, carried, outcome, soon};

const HERE: &str = "127.0.0.1:0";

async fn two() -> Result<(UdpSocket, UdpSocket, SocketAddr)> {
    let (one, two) = (UdpSocket::bind(HERE).await?, UdpSocket::bind(HERE).await?);
    let addr = two.local_addr()?;
    Ok((one, two, addr))
}

/// An address where nobody is.
async fn nowhere() -> Result<SocketAddr> {
    Ok(UdpSocket::bind(HERE).await?.local_addr()?)
}

async fn receive(socket: &UdpSocket, most: usize) -> String {
    let receive = socket.recv(Vec::with_capacity(most));
    let received = soon(async {
        let (received, bytes) = receive.await;
        received.map(|_| bytes)
    });
    match received.await {
        Ok(bytes) => format!("{:?}", String::from_utf8_lossy(&bytes)),
        Err(error) => outcome::<()>(Err(error)),
    }
}

async fn send(socket: &UdpSocket, bytes: &'static str) -> io::Result<usize> {
    socket.send(bytes).await.0
}

pub async fn a_message_is_cut_to_the_buffer(_: At) -> Result<Tale> {
    let (one, two, addr) = two().await?;
    one.send_to("longer than it", addr).await.0?;
    one.send_to("next", addr).await.0?;
    let mut tale = Tale::new();
    tale.say("received", receive(&two, 4).await);
    let (received, _) = two.recv_from(Vec::with_capacity(2)).await;
    tale.add("received", received.map(|(bytes, _)| bytes));
    Ok(tale)
}

pub async fn an_empty_message_arrives(_: At) -> Result<Tale> {
    let (one, two, addr) = two().await?;
    let mut tale = Tale::new();
    tale.add("sent", one.send_to("", addr).await.0);
    let (received, _) = two.recv_from(vec![0; 8]).await;
    tale.add("received", received.map(|(bytes, _)| bytes));
    Ok(tale)
}

pub async fn a_message_to_nobody(_: At) -> Result<Tale> {
    let (one, _two, _) = two().await?;
    let nowhere = nowhere().await?;
    let mut tale = Tale::new();
    tale.add("sent", one.send_to("lost", nowhere).await.0);
    carried().await?;
    tale.add("again", one.send_to("lost", nowhere).await.0);
    tale.say("received", receive(&one, 8).await);
    Ok(tale)
}

pub async fn a_message_to_nobody_connected_and_read(_: At) -> Result<Tale> {
    let (one, _two, _) = two().await?;
    one.connect(nowhere().await?).await?;
    let mut tale = Tale::new();
    tale.add("sent", send(&one, "lost").await);
    carried().await?;
    tale.say("received", receive(&one, 8).await);
    tale.say("received", receive(&one, 8).await);
    Ok(tale)
}

pub async fn a_message_to_nobody_connected_and_sent(_: At) -> Result<Tale> {
    let (one, _two, _) = two().await?;
    one.connect(nowhere().await?).await?;
    let mut tale = Tale::new();
    for _ in 0..4 {
        tale.add("sent", send(&one, "lost").await);
        carried().await?;
    }
    Ok(tale)
}

pub async fn connected_it_hears_one_peer(_: At) -> Result<Tale> {
    let (one, two, addr) = two().await?;
    let third = UdpSocket::bind(HERE).await?;
    two.connect(one.local_addr()?).await?;
    third.send_to("from a third", addr).await.0?;
    one.send_to("from the peer", addr).await.0?;
    let mut tale = Tale::new();
    tale.say("received", receive(&two, 32).await);
    tale.say("received", receive(&two, 32).await);
    tale.add(
        "its peer",
        two.peer_addr()
            .map(|peer| Some(peer) == one.local_addr().ok()),
    );
    Ok(tale)
}

pub async fn sent_without_a_peer(_: At) -> Result<Tale> {
    let (one, _two, _) = two().await?;
    let mut tale = Tale::new();
    tale.add("sent", send(&one, "to whom").await);
    tale.add("its peer", one.peer_addr().map(drop));
    Ok(tale)
}

pub async fn a_message_too_long(_: At) -> Result<Tale> {
    let (one, _two, addr) = two().await?;
    let mut tale = Tale::new();
    tale.add("sent", one.send_to(vec![0; 65_508], addr).await.0);
    Ok(tale)
}

pub async fn the_longest_message_arrives(_: At) -> Result<Tale> {
    let (one, two, addr) = two().await?;
    let mut tale = Tale::new();
    tale.add("sent", one.send_to(vec![0; 65_507], addr).await.0);
    let (received, _) = two.recv_from(Vec::with_capacity(1 << 17)).await;
    tale.add("received", received.map(|(bytes, _)| bytes));
    Ok(tale)
}

pub async fn messages_at_one_port(_: At) -> Result<Tale> {
    let (_one, _two, addr) = two().await?;
    let mut tale = Tale::new();
    tale.add("bind", UdpSocket::bind(addr).await.map(drop));
    Ok(tale)
}

pub async fn more_messages_than_fit(_: At) -> Result<Tale> {
    let (one, two, addr) = two().await?;
    let mut tale = Tale::new();
    let mut sent = 0;
    for _ in 0..4000 {
        sent += usize::from(one.send_to(vec![b'a'; 1000], addr).await.0.is_ok());
    }
    tale.say("sent", sent);
    let mut received = 0;
    while receive(&two, 1).await == "\"a\"" {
        received += 1;
    }
    tale.say("some were lost", received < sent && received > 0);
    Ok(tale)
}

pub async fn connected_it_may_send_elsewhere(_: At) -> Result<Tale> {
    let (one, two, addr) = two().await?;
    one.connect(nowhere().await?).await?;
    let mut tale = Tale::new();
    tale.add("sent", one.send_to("elsewhere", addr).await.0);
    tale.say("received", receive(&two, 32).await);
    Ok(tale)
}

pub async fn messages_stay_in_order(_: At) -> Result<Tale> {
    let (one, two, addr) = two().await?;
    for words in ["a", "b", "c"] {
        one.send_to(words, addr).await.0?;
    }
    let mut tale = Tale::new();
    for _ in 0..3 {
        tale.say("received", receive(&two, 32).await);
    }
    tale.say("received", receive(&two, 32).await);
    Ok(tale)
}
