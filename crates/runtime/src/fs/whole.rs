//! Whole files.

use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};

use super::{File, OpenOptions};
use crate::io::ops::Read;
use crate::io::{IoBuf, Offset};

/// How much is copied at a time.
const CHUNK: usize = 256 * 1024;

/// Reads all bytes of a file.
///
/// # Cancellation
/// A *point*.
///
/// # Errors
/// Those of the system; `OutOfMemory` if there is no memory for so many bytes.
#[track_caller]
pub fn read<P: AsRef<Path>>(path: P) -> impl Future<Output = io::Result<Vec<u8>>> + Send + use<P> {
    let site = Location::caller();
    read_all(site, File::open(path))
}

/// Snapshots and reports name `site`.
async fn read_all(
    site: &'static Location<'static>,
    open: impl Future<Output = io::Result<File>>,
) -> io::Result<Vec<u8>> {
    let file = open.await?;
    // One more than it says, to see the end without growing.
    let len = usize::try_from(file.metadata_for(site).await?.len()).unwrap_or(0);
    let mut bytes = Vec::new();
    grow(&mut bytes, len.saturating_add(1))?;
    loop {
        if bytes.len() == bytes.capacity() {
            grow(&mut bytes, CHUNK)?;
        }
        let done = bytes.len();
        let rest = Read::new(
            file.fd.clone(),
            bytes.slice(done..),
            Offset::At(done as u64),
        );
        let (read, part) = file.op(rest).at(site).await;
        bytes = part.into_inner();
        if read? == 0 {
            break;
        }
    }
    file.close_for(site).await?;
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
#[track_caller]
pub fn write<P: AsRef<Path>, B: IoBuf>(
    path: P,
    bytes: B,
) -> impl Future<Output = (io::Result<()>, B)> + Send + use<P, B> {
    let site = Location::caller();
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let open = options.open(path);
    async move {
        let file = match open.await {
            Ok(file) => file,
            Err(error) => return (Err(error), bytes),
        };
        let (written, bytes) = file.write_all_for(site, bytes, 0).await;
        match written {
            Ok(()) => (file.close_for(site).await, bytes),
            Err(error) => (Err(error), bytes),
        }
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
#[track_caller]
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(
    from: P,
    to: Q,
) -> impl Future<Output = io::Result<u64>> + Send + use<P, Q> {
    let site = Location::caller();
    copy_all(site, File::open(from), to.as_ref().to_path_buf())
}

/// Snapshots and reports name `site`.
async fn copy_all(
    site: &'static Location<'static>,
    open: impl Future<Output = io::Result<File>>,
    to: PathBuf,
) -> io::Result<u64> {
    let from = open.await?;
    let mode = from.metadata_for(site).await?.mode();
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let to = options.mode(mode).open_for(site, &to).await?;
    let (mut buf, mut at) = (Vec::with_capacity(CHUNK), 0);
    loop {
        let read = Read::new(from.fd.clone(), buf, Offset::At(at));
        let (read, bytes) = from.op(read).at(site).await;
        if read? == 0 {
            break;
        }
        let (written, bytes) = to.write_all_for(site, bytes, at).await;
        written?;
        at += bytes.len() as u64;
        buf = bytes;
    }
    to.close_for(site).await?;
    Ok(at)
}
