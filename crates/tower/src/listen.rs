//! [`Listen`]: where connections come from, and what is done when accepting fails.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A source of connections for a [`Server`](crate::Server). Implement it to serve TLS or Unix
/// sockets.
pub trait Listen: Send + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The other side of one. Each request has it among its extensions, and the job of the
    /// connection is named after it.
    type Peer: Clone + Debug + Send + Sync + 'static;

    /// Waits for the next connection. It is dropped when the server stops; what it returns is
    /// not lost before that.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, Self::Peer)>> + Send;
}

impl Listen for TcpListener {
    type Io = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Answers are written whole: none waits for another.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }
}

/// True for an error of the one connection that was about to be accepted.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// How long a server that cannot accept waits: no file is free, or no memory.
#[derive(Default)]
pub(crate) struct AcceptPause(Option<Duration>);

impl AcceptPause {
    const FIRST: Duration = Duration::from_millis(5);
    const MOST: Duration = Duration::from_secs(1);

    /// The next pause, twice as long as the last.
    pub(crate) fn next(&mut self) -> Duration {
        let next = self.0.map_or(AcceptPause::FIRST, |last| last * 2);
        *self.0.insert(next.min(AcceptPause::MOST))
    }

    /// True if it accepts again: none is under way.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_none()
    }

    /// A connection was accepted.
    pub(crate) fn ends(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_second_and_begin_anew() {
        let mut pause = AcceptPause::default();
        let millis: Vec<_> = (0..10).map(|_| pause.next().as_millis()).collect();
        assert_eq!(millis, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        pause.ends();
        assert!(pause.is_over());
        assert_eq!(pause.next(), AcceptPause::FIRST);
    }
}
