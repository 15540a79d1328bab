//! What a probe is given, and how it says what it has found.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kinfolk_core::{Error, Result, sleep, timeout};
use kinfolk_runtime::io::{PipeReader, PipeWriter, told};
use kinfolk_runtime::net::{TcpStream, UnixStream};

/// After so long an operation is said to wait. Real time on Linux: that something
/// does not happen is seen in no other way.
const LONG: Duration = Duration::from_millis(400);

/// In so long a loopback network has carried everything. It does so at once; the
/// other side may be a worker that is not running.
const CARRIED: Duration = Duration::from_millis(30);

/// What a probe is given.
#[derive(Clone)]
pub struct At {
    /// A directory of its own.
    pub dir: PathBuf,
}

impl At {
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// What a probe has found: a few words for each thing that it did.
#[derive(Default)]
pub struct Tale(Vec<String>);

impl Tale {
    pub fn new() -> Tale {
        Tale::default()
    }

    /// What came of something.
    pub fn add<T: fmt::Debug>(&mut self, what: &str, came: io::Result<T>) {
        self.say(what, outcome(came));
    }

    pub fn say(&mut self, what: &str, words: impl fmt::Display) {
        self.0.push(format!("{what}: {words}"));
    }
}

impl fmt::Display for Tale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

const NAMES: &[(i32, &str)] = &[
    (libc::EACCES, "EACCES"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EBADF, "EBADF"),
    (libc::EBUSY, "EBUSY"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::EDESTADDRREQ, "EDESTADDRREQ"),
    (libc::EEXIST, "EEXIST"),
    (libc::EFBIG, "EFBIG"),
    (libc::EINVAL, "EINVAL"),
    (libc::EISCONN, "EISCONN"),
    (libc::EISDIR, "EISDIR"),
    (libc::EMSGSIZE, "EMSGSIZE"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOENT, "ENOENT"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ENXIO, "ENXIO"),
    (libc::EPERM, "EPERM"),
    (libc::EPIPE, "EPIPE"),
];

/// In words: an error by the name that the system has for it.
pub fn outcome<T: fmt::Debug>(came: io::Result<T>) -> String {
    match came {
        Ok(value) => match format!("{value:?}") {
            unit if unit == "()" => "ok".into(),
            words => words,
        },
        Err(error) if told(&error).is_some() => "waits".into(),
        Err(error) => match error.raw_os_error() {
            None => format!("{:?}", error.kind()),
            Some(number) => NAMES
                .iter()
                .find(|(own, _)| *own == number)
                .map_or(format!("error {number}"), |(_, name)| (*name).into()),
        },
    }
}

/// As much as there is time for.
pub async fn soon<T>(what: impl Future<Output = io::Result<T>> + Send) -> io::Result<T>
where
    T: Send + 'static,
{
    let came = timeout(LONG, async { Ok::<_, Error>(what.await) }).await;
    came.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Lets the network carry what is on its way.
pub async fn carried() -> Result<()> {
    sleep(CARRIED).await?;
    Ok(())
}

/// What is read from.
pub trait Source: Sync {
    fn take(
        &self,
        most: usize,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + Send + use<Self>;
}

/// What is written to.
pub trait Sink: Sync {
    fn put(
        &self,
        bytes: Vec<u8>,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + Send + use<Self>;
}

macro_rules! sources {
    ($($name:ty),*) => {$(
        impl Source for $name {
            fn take(
                &self,
                most: usize,
            ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + Send + use<> {
                self.read(Vec::with_capacity(most))
            }
        }
    )*};
}

macro_rules! sinks {
    ($($name:ty),*) => {$(
        impl Sink for $name {
            fn put(
                &self,
                bytes: Vec<u8>,
            ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + Send + use<> {
                self.write(bytes)
            }
        }
    )*};
}

sources!(TcpStream, UnixStream, PipeReader);
sinks!(TcpStream, UnixStream, PipeWriter);

/// What a read says: the bytes, `end`, an error, or that it waits.
pub async fn read(from: &impl Source, most: usize) -> String {
    let read = from.take(most);
    let read = soon(async {
        let (read, bytes) = read.await;
        read.map(|_| bytes)
    });
    match read.await {
        Ok(bytes) if bytes.is_empty() && most > 0 => "end".into(),
        Ok(bytes) if bytes.is_empty() => "0".into(),
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => outcome::<()>(Err(error)),
    }
}

/// How many bytes a write takes.
pub async fn write(to: &impl Sink, bytes: impl Into<Vec<u8>>) -> String {
    let written = to.put(bytes.into());
    outcome(soon(async { written.await.0 }).await)
}

/// Writes pieces of a size until the next one waits; how many bytes that were.
pub async fn fill(to: &impl Sink, piece: usize) -> Result<usize> {
    let mut all = 0;
    loop {
        let written = to.put(vec![b'x'; piece]);
        match soon(async { written.await.0 }).await {
            Ok(bytes) => all += bytes,
            Err(error) if told(&error).is_some() => return Ok(all),
            Err(error) => return Err(error.into()),
        }
    }
}
