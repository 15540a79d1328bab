//! Listening, connecting, accepting.

use kinfolk_core::Result;
use kinfolk_runtime::net::{TcpListener, TcpStream, UdpSocket};

use super::tale::{At, Tale, carried, read, soon, write};

const HERE: &str = "127.0.0.1:0";

pub async fn connect_where_nobody_listens(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let addr = listener.local_addr()?;
    drop(listener);
    let mut tale = Tale::new();
    tale.add("connect", TcpStream::connect(addr).await.map(drop));
    Ok(tale)
}

pub async fn connect_to_port_zero(_: At) -> Result<Tale> {
    let mut tale = Tale::new();
    tale.add("connect", TcpStream::connect(HERE).await.map(drop));
    Ok(tale)
}

pub async fn connect_to_any_address(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let addr = listener.local_addr()?;
    let one = TcpStream::connect(("0.0.0.0", addr.port())).await?;
    let mut tale = Tale::new();
    tale.add("its address", one.peer_addr().map(|peer| peer == addr));
    tale.add("the own", one.local_addr().map(|own| own.ip()));
    Ok(tale)
}

pub async fn connect_on_the_other_protocol(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let port = listener.local_addr()?.port();
    let mut tale = Tale::new();
    let other = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    tale.add("connect", TcpStream::connect(other).await.map(drop));
    Ok(tale)
}

pub async fn listen_where_one_listens(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let again = TcpListener::bind(listener.local_addr()?).await;
    let mut tale = Tale::new();
    tale.add("listen", again.map(drop));
    Ok(tale)
}

pub async fn listen_everywhere_where_one_listens(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let port = listener.local_addr()?.port();
    let mut tale = Tale::new();
    let again = TcpListener::bind(("0.0.0.0", port)).await;
    tale.add("listen", again.map(drop));
    Ok(tale)
}

pub async fn listen_at_a_neighbour(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let port = listener.local_addr()?.port();
    let mut tale = Tale::new();
    let other = TcpListener::bind(("127.0.0.77", port)).await?;
    let one = TcpStream::connect(("127.0.0.77", port)).await?;
    let (_two, _) = other.accept().await?;
    tale.add("its address", one.peer_addr().map(|peer| peer.ip()));
    let none = soon(listener.accept()).await;
    tale.add("the first", none.map(drop));
    Ok(tale)
}

pub async fn listen_again_while_a_connection_lives(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let addr = listener.local_addr()?;
    let one = TcpStream::connect(addr).await?;
    let (two, _) = listener.accept().await?;
    drop(listener);
    let mut tale = Tale::new();
    let again = TcpListener::bind(addr).await;
    tale.add("listen", again.map(drop));
    tale.say("write", write(&two, "still here").await);
    tale.say("read", read(&one, 16).await);
    Ok(tale)
}

pub async fn listen_at_an_address_of_another_machine(_: At) -> Result<Tale> {
    let mut tale = Tale::new();
    let there = TcpListener::bind("192.0.2.1:0").await;
    tale.add("listen", there.map(drop));
    Ok(tale)
}

pub async fn ports_are_chosen(_: At) -> Result<Tale> {
    let one = TcpListener::bind(HERE).await?.local_addr()?.port();
    let first = TcpListener::bind(HERE).await?;
    let second = TcpListener::bind(HERE).await?;
    let (first, second) = (first.local_addr()?.port(), second.local_addr()?.port());
    let mut tale = Tale::new();
    tale.say("above 1024", one > 1024 && first > 1024);
    tale.say("two differ", first != second);
    Ok(tale)
}

pub async fn written_before_it_was_accepted(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let mut tale = Tale::new();
    tale.say("write", write(&one, "early").await);
    let (two, _) = listener.accept().await?;
    tale.say("read", read(&two, 16).await);
    Ok(tale)
}

pub async fn accepted_in_order(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(TcpStream::connect(listener.local_addr()?).await?);
    }
    let mut tale = Tale::new();
    for client in &clients {
        let (_, peer) = listener.accept().await?;
        tale.say("in order", peer == client.local_addr()?);
    }
    Ok(tale)
}

pub async fn accepted_after_the_client_left(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let own = one.local_addr()?;
    one.write_all("farewell").await.0?;
    drop(one);
    carried().await?;
    let (two, peer) = listener.accept().await?;
    let mut tale = Tale::new();
    tale.say("its address", peer == own);
    tale.say("read", read(&two, 16).await);
    tale.say("read", read(&two, 16).await);
    tale.say("write", write(&two, "late").await);
    Ok(tale)
}

pub async fn a_listener_leaves_with_connections_waiting(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    drop(listener);
    carried().await?;
    let mut tale = Tale::new();
    tale.say("read", read(&one, 8).await);
    tale.say("write", write(&one, "a").await);
    Ok(tale)
}

pub async fn addresses_of_both_sides(_: At) -> Result<Tale> {
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let port = listener.local_addr()?.port();
    let one = TcpStream::connect(("127.0.0.1", port)).await?;
    let (two, peer) = listener.accept().await?;
    let mut tale = Tale::new();
    tale.say("the accepted", two.local_addr()? == one.peer_addr()?);
    tale.say("the client", two.peer_addr()? == one.local_addr()?);
    tale.say("as was said", peer == one.local_addr()?);
    tale.say("the accepted has", two.local_addr()?.ip());
    tale.say("the listener", listener.local_addr()?.ip());
    Ok(tale)
}

pub async fn accept_waits(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let mut tale = Tale::new();
    tale.add("accept", soon(listener.accept()).await.map(drop));
    let _one = TcpStream::connect(listener.local_addr()?).await?;
    tale.add("accept", soon(listener.accept()).await.map(drop));
    Ok(tale)
}

pub async fn tcp_and_udp_share_a_port(_: At) -> Result<Tale> {
    let listener = TcpListener::bind(HERE).await?;
    let mut tale = Tale::new();
    let messages = UdpSocket::bind(listener.local_addr()?).await;
    tale.add("bind", messages.map(drop));
    Ok(tale)
}
