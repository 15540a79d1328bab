//! Whole files.

use std::io;
use std::path::Path;

use super::{File, OpenOptions};
use crate::io::IoBuf;

/// How much is copied at a time.
const CHUNK: usize = 256 * 1024;

/// Reads all bytes of a file.
///
/// # Cancellation
/// A *point*.
///
/// # Errors
/// Those of the system; `OutOfMemory` if there is no memory for so many bytes.
pub async fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let file = File::open(path).await?;
    // One more than it says, to see the end without growing.
    let len = usize::try_from(file.metadata().await?.len()).unwrap_or(0);
    let mut bytes = Vec::new();
    grow(&mut bytes, len.saturating_add(1))?;
    loop {
        if bytes.len() == bytes.capacity() {
            grow(&mut bytes, CHUNK)?;
        }
        let done = bytes.len();
        let (read, part) = file.read_at(bytes.slice(done..), done as u64).await;
        bytes = part.into_inner();
        if read? == 0 {
            break;
        }
    }
    file.close().await?;
    Ok(bytes)
}

/// Room for so many more. A file may say that it is longer than any memory.
fn grow(bytes: &mut Vec<u8>, more: usize) -> io::Result<()> {
    let grown = bytes.try_reserve(more);
    grown.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))
}

/// Writes `buf` as the whole contents of a file, which is created if it does not exist.
///
/// It is *not atomic*: the old bytes are gone before the new ones are there, and there is
/// no `fsync`. To replace a file, write another one beside it,
/// [`sync_data`](File::sync_data) it, and [`rename`](super::rename) it.
///
/// # Cancellation
/// A *point*. If it returns `Cancelled`, the file may contain a part of the bytes, or none.
/// The buffer comes back either way.
///
/// # Errors
/// Those of the system.
pub async fn write<P: AsRef<Path>, B: IoBuf>(path: P, bytes: B) -> (io::Result<()>, B) {
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let file = match options.open(path).await {
        Ok(file) => file,
        Err(error) => return (Err(error), bytes),
    };
    let (written, bytes) = file.write_all_at(bytes, 0).await;
    match written {
        Ok(()) => (file.close().await, bytes),
        Err(error) => (Err(error), bytes),
    }
}

/// Copies the contents and the permissions of one file to another, which is created or
/// truncated. Returns how many bytes were copied.
///
/// Not atomic, like [`write()`].
///
/// # Cancellation
/// A *point*. If it returns `Cancelled`, the other file may contain a part of the bytes, or
/// none.
///
/// # Errors
/// Those of the system.
pub async fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let from = File::open(from).await?;
    let mode = from.metadata().await?.mode();
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let to = options.mode(mode).open(to).await?;
    let (mut buf, mut at) = (Vec::with_capacity(CHUNK), 0);
    loop {
        let (read, bytes) = from.read_at(buf, at).await;
        if read? == 0 {
            break;
        }
        let (written, bytes) = to.write_all_at(bytes, at).await;
        written?;
        at += bytes.len() as u64;
        buf = bytes;
    }
    to.close().await?;
    Ok(at)
}
