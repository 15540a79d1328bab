//! Sockets with names on the disk.

use std::net::Shutdown;

use kinfolk_core::Result;
use kinfolk_runtime::fs;
use kinfolk_runtime::net::{UnixDatagram, UnixListener, UnixStream};

use super::tale::{At, Tale, outcome, read, soon, write};

pub async fn unix_write_after_the_peer_closed(_: At) -> Result<Tale> {
    let (one, two) = UnixStream::pair()?;
    drop(two);
    let mut tale = Tale::new();
    tale.say("write", write(&one, "a").await);
    tale.say("read", read(&one, 8).await);
    Ok(tale)
}

pub async fn unix_close_with_unread_bytes(_: At) -> Result<Tale> {
    let (one, two) = UnixStream::pair()?;
    one.write_all("unread").await.0?;
    two.write_all("answer").await.0?;
    drop(two);
    let mut tale = Tale::new();
    tale.say("read", read(&one, 16).await);
    tale.say("read", read(&one, 16).await);
    tale.say("read", read(&one, 16).await);
    tale.say("write", write(&one, "a").await);
    Ok(tale)
}

pub async fn unix_shut_for_reading(_: At) -> Result<Tale> {
    let (one, two) = UnixStream::pair()?;
    two.write_all("before").await.0?;
    let mut tale = Tale::new();
    tale.add("shut", one.shutdown(Shutdown::Read).await);
    tale.say("the other writes", write(&two, "a").await);
    tale.say("read", read(&one, 16).await);
    tale.say("read", read(&one, 16).await);
    tale.say("write", write(&one, "a").await);
    Ok(tale)
}

pub async fn unix_connect_to_nothing(at: At) -> Result<Tale> {
    let mut tale = Tale::new();
    tale.add("connect", UnixStream::connect(at.path("a")).await.map(drop));
    Ok(tale)
}

pub async fn unix_connect_to_a_file(at: At) -> Result<Tale> {
    fs::write(at.path("a"), "words").await.0?;
    let mut tale = Tale::new();
    tale.add("connect", UnixStream::connect(at.path("a")).await.map(drop));
    tale.add("bind", UnixListener::bind(at.path("a")).await.map(drop));
    Ok(tale)
}

pub async fn unix_name_outlives_its_listener(at: At) -> Result<Tale> {
    let path = at.path("a");
    drop(UnixListener::bind(&path).await?);
    let mut tale = Tale::new();
    tale.add("connect", UnixStream::connect(&path).await.map(drop));
    tale.add("bind", UnixListener::bind(&path).await.map(drop));
    tale.add("remove", fs::remove_file(&path).await);
    tale.add("connect", UnixStream::connect(&path).await.map(drop));
    tale.add("bind", UnixListener::bind(&path).await.map(drop));
    Ok(tale)
}

pub async fn unix_bind_where_no_directory_is(at: At) -> Result<Tale> {
    let mut tale = Tale::new();
    let path = at.path("none/a");
    tale.add("bind", UnixListener::bind(&path).await.map(drop));
    tale.add("bind", UnixDatagram::bind(&path).await.map(drop));
    Ok(tale)
}

async fn receive(socket: &UnixDatagram, most: usize) -> String {
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

pub async fn unix_message_to_nothing(at: At) -> Result<Tale> {
    let one = UnixDatagram::unbound()?;
    let path = at.path("a");
    let mut tale = Tale::new();
    tale.add("sent", one.send_to("lost", &path).await.0);
    drop(UnixDatagram::bind(&path).await?);
    tale.add("sent", one.send_to("lost", &path).await.0);
    tale.add("sent", one.send("lost").await.0);
    Ok(tale)
}

pub async fn unix_message_is_cut(_: At) -> Result<Tale> {
    let (one, two) = UnixDatagram::pair()?;
    one.send("longer than it").await.0?;
    one.send("").await.0?;
    one.send("next").await.0?;
    let mut tale = Tale::new();
    for _ in 0..3 {
        tale.say("received", receive(&two, 6).await);
    }
    Ok(tale)
}

pub async fn unix_messages_wait_for_room(_: At) -> Result<Tale> {
    let (one, two) = UnixDatagram::pair()?;
    let mut sent = 0;
    let waits = loop {
        let send = one.send("a");
        match soon(async { send.await.0 }).await {
            Ok(_) if sent < 5000 => sent += 1,
            other => break outcome(other),
        }
    };
    let mut tale = Tale::new();
    tale.say("the next one", waits);
    let mut received = 0;
    while receive(&two, 8).await == "\"a\"" {
        received += 1;
    }
    tale.say("none was lost", received == sent);
    tale.add("sent", one.send("a").await.0);
    Ok(tale)
}

pub async fn unix_message_after_the_peer_left(_: At) -> Result<Tale> {
    let (one, two) = UnixDatagram::pair()?;
    two.send("left").await.0?;
    drop(two);
    let mut tale = Tale::new();
    tale.add("sent", one.send("a").await.0);
    tale.add("sent", one.send("a").await.0);
    tale.say("received", receive(&one, 8).await);
    Ok(tale)
}

pub async fn unix_names_of_a_pair(at: At) -> Result<Tale> {
    let (one, _two) = UnixStream::pair()?;
    let mut tale = Tale::new();
    tale.add("its name", one.peer_addr().map(|addr| addr.is_unnamed()));
    tale.add("the own", one.local_addr().map(|addr| addr.is_unnamed()));
    let listener = UnixListener::bind(at.path("a")).await?;
    let one = UnixStream::connect(at.path("a")).await?;
    let (two, peer) = listener.accept().await?;
    let named = |addr: std::os::unix::net::SocketAddr| {
        let name = addr.as_pathname().and_then(|path| path.file_name());
        name.map(|name| name.to_string_lossy().into_owned())
    };
    tale.add("the listener's", one.peer_addr().map(named));
    tale.add("the accepted's", two.local_addr().map(named));
    tale.say("the client's", peer.is_unnamed());
    Ok(tale)
}

pub async fn unix_name_is_renamed(at: At) -> Result<Tale> {
    let _listener = UnixListener::bind(at.path("a")).await?;
    fs::rename(at.path("a"), at.path("b")).await?;
    let mut tale = Tale::new();
    tale.add(
        "old name",
        UnixStream::connect(at.path("a")).await.map(drop),
    );
    tale.add(
        "new name",
        UnixStream::connect(at.path("b")).await.map(drop),
    );
    tale.add("open", fs::File::open(at.path("b")).await.map(drop));
    Ok(tale)
}

pub async fn unix_listener_leaves_with_connections_waiting(at: At) -> Result<Tale> {
    let listener = UnixListener::bind(at.path("a")).await?;
    let one = UnixStream::connect(at.path("a")).await?;
    drop(listener);
    let mut tale = Tale::new();
    tale.say("read", read(&one, 8).await);
    tale.say("read", read(&one, 8).await);
    tale.say("write", write(&one, "a").await);
    Ok(tale)
}
