//! An address of our own, though another process may just have had it.

use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::time::Duration;

use kinfolk_core::placed::sleep_at;
use socket2::SockAddr;

use super::addr::no_address;
use super::socket::Socket;
use crate::io::cancelled;

/// How long we wait at first, and twice as long each time.
const FIRST: Duration = Duration::from_millis(1);

/// How long we wait at last: a tenth of a second in all.
const LAST: Duration = Duration::from_millis(64);

/// A socket at the first of these addresses that is free. The system takes a
/// while to close what a killed process had open: if none can be had and one is in
/// use, we ask again. A point, from then on, which snapshots and reports place at `site`.
pub(super) async fn first_of(
    site: &'static Location<'static>,
    addrs: &[SocketAddr],
    at: impl Fn(&SockAddr) -> io::Result<Socket>,
) -> io::Result<Socket> {
    let mut wait = FIRST;
    loop {
        let (mut last, mut in_use) = (no_address(), false);
        for addr in addrs {
            match at(&SockAddr::from(*addr)) {
                Ok(socket) => return Ok(socket),
                Err(error) => {
                    in_use |= error.kind() == io::ErrorKind::AddrInUse;
                    last = error;
                }
            }
        }
        if !in_use || wait > LAST {
            return Err(last);
        }
        sleep_at(site, wait).await.map_err(cancelled)?;
        wait *= 2;
    }
}
