//! The log on the disk: read from its beginning, in pieces, and what is done if a
//! part of it is no record.
//!
//! **What a crash leaves.** There is one batch at a time, and the next is written when
//! this one is on the disk. So only the last batch can be torn, and it was not
//! acknowledged. A killed process leaves the first part of it. A power cut leaves
//! any of its sectors, in any order: those that are missing are zeros, or lie behind
//! the end of the file; records of the same batch may lie behind them.
//!
//! **What no crash leaves.** A record of a *later* batch behind the bad bytes: these
//! were on the disk by then. And bad bytes among which nothing is missing.
//!
//! What a crash has left is cut off. Anything else is [`Damaged`], and left alone:
//! what lies there was acknowledged.

use std::error;
use std::fmt;
use std::io;
use std::mem::take;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kinfolk::fs::{self, File, OpenOptions};
use kinfolk::io::IoBuf;
use kinfolk::{OrFail, Result};

use crate::record::{BEGINNING, Found, Record};

/// The name of the log in its directory.
pub const LOG: &str = "log";

/// How much is read at once.
const PIECE: usize = 256 << 10;

/// What a disk writes at once: all of it, or nothing.
const SECTOR: u64 = 512;

/// A log that has bad bytes which no crash leaves. Nothing was changed.
#[derive(Debug)]
pub struct Damaged {
    path: PathBuf,
    bad: Range<u64>,
    /// Records that can be read, before the bad bytes and behind them.
    readable: [u64; 2],
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, Range { start, end }) = (self.path.display(), &self.bad);
        let [before, behind] = self.readable;
        write!(
            f,
            "{path} is damaged: the bytes from {start} to {end} are no record, and no crash \
             leaves such bytes. {before} records can be read before them and {behind} behind \
             them. Nothing was changed. Put the log back from a copy; or start with --salvage, \
             which keeps the records that can be read and moves the other bytes into files \
             beside the log"
        )
    }
}

impl error::Error for Damaged {}

/// Bytes that were taken out of the log, and the file that has them now.
#[derive(Debug)]
pub struct Dropped {
    /// Where they were.
    pub bytes: Range<u64>,
    /// Where they are.
    pub file: PathBuf,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Range { start, end }, file) = (&self.bytes, self.file.display());
        write!(f, "the bytes from {start} to {end} are now in {file}")
    }
}

/// Reads the log, gives away its records, and says where the last batch of them begins
/// and ends. What a crash has left behind that is cut off, and standard error says so;
/// the caller [writes the last batch again](write_again), and syncs.
///
/// # Errors
/// [`Damaged`], and those of the disk.
pub(crate) async fn load(
    file: &File,
    path: &Path,
    mut each: impl FnMut(Record),
) -> Result<Range<u64>> {
    let mut scan = Scan::new(file).await?;
    let (mut bad, mut damaged, mut readable, mut last) = (None, false, [0, 0], 0);
    while let Some(part) = scan.next().await? {
        match (part, &bad) {
            (Part::Record(record, synced), None) => {
                readable[0] += 1;
                last = synced;
                each(record);
            }
            (Part::Record(_, synced), Some(Range { start, .. })) => {
                readable[1] += 1;
                damaged |= synced > *start;
            }
            (Part::Bad { bytes, torn }, _) => {
                damaged |= !torn;
                bad.get_or_insert(bytes);
            }
        }
    }
    let Some(bad) = bad else {
        return Ok(last..scan.len);
    };
    if damaged {
        let path = path.to_owned();
        let damaged = Damaged {
            path,
            bad,
            readable,
        };
        return Err(damaged).or_fail();
    }
    let (path, bytes, end) = (path.display(), scan.len - bad.start, bad.start);
    eprintln!("kvlog: cut {bytes} bytes off the end of {path}: a batch that a crash has torn");
    file.set_len(end).await?;
    Ok(last..end)
}

/// Writes bytes of the log as they are. If the sync of a batch has failed, the system
/// holds it for written though it may not be on the disk, and no later sync writes it:
/// only bytes that are written again are safe.
pub(crate) async fn write_again(file: &File, bytes: Range<u64>) -> io::Result<()> {
    let (mut pieces, mut at) = (Pieces::new(file), bytes.start);
    while at < bytes.end {
        let len = PIECE.min((bytes.end - at) as usize);
        let piece = pieces.get(at, len).await?[..len].to_vec();
        file.write_all_at(piece, at).await.0?;
        at += len as u64;
    }
    Ok(())
}

/// Makes a log of the records that can be read; every other byte is moved into files
/// beside it. None is moved if all is well.
///
/// # Cancellation
/// A *point*. Told, the log is as it was, or is the new one.
///
/// # Errors
/// Those of the disk. Then the log is as it was.
pub async fn salvage(dir: &Path) -> Result<Vec<Dropped>> {
    let path = dir.join(LOG);
    let file = File::open(&path).await?;
    let new = dir.join(format!("{LOG}.new"));
    let mut kept = Batches {
        file: File::create(&new).await?,
        end: 0,
        batch: BEGINNING.into(),
    };
    let (mut scan, mut dropped) = (Scan::new(&file).await?, Vec::new());
    while let Some(part) = scan.next().await? {
        match part {
            Part::Record(record, _) => kept.add(&record).await?,
            Part::Bad { bytes, .. } => {
                let aside = set_aside(&file, bytes.clone(), &path).await?;
                dropped.push(Dropped { bytes, file: aside });
            }
        }
    }
    kept.flush().await?;
    kept.file.sync_all().await?;
    kept.file.close().await?;
    match dropped.is_empty() {
        true => fs::remove_file(&new).await?,
        // First the names of what was moved, then the log without it.
        false => {
            sync_names(dir).await?;
            fs::rename(&new, &path).await?;
            sync_names(dir).await?;
        }
    }
    Ok(dropped)
}

/// The records of a new log.
struct Batches {
    file: File,
    end: u64,
    batch: Vec<u8>,
}

impl Batches {
    async fn add(&mut self, record: &Record) -> io::Result<()> {
        if self.batch.len() >= PIECE {
            self.flush().await?;
        }
        record.append_to(&mut self.batch, self.end);
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        let batch = take(&mut self.batch);
        let (written, batch) = self.file.write_all_at(batch, self.end).await;
        self.end += batch.len() as u64;
        self.batch = batch;
        self.batch.clear();
        written
    }
}

/// Copies bytes of the log into a file beside it that has not been there.
async fn set_aside(file: &File, bytes: Range<u64>, path: &Path) -> io::Result<PathBuf> {
    let (mut times, name) = (1, format!("{}.bad-{}", path.display(), bytes.start));
    let (aside, copy) = loop {
        let aside = match times {
            1 => PathBuf::from(&name),
            _ => PathBuf::from(format!("{name}-{times}")),
        };
        let options = OpenOptions::new().write(true).create_new(true);
        match options.open(&aside).await {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => times += 1,
            opened => break (aside, opened?),
        }
    };
    let (mut pieces, mut at) = (Pieces::new(file), bytes.start);
    while at < bytes.end {
        let len = PIECE.min((bytes.end - at) as usize);
        let piece = pieces.get(at, len).await?[..len].to_vec();
        copy.write_all_at(piece, at - bytes.start).await.0?;
        at += len as u64;
    }
    copy.sync_all().await?;
    copy.close().await?;
    Ok(aside)
}

/// The names in a directory are on the disk.
pub(crate) async fn sync_names(dir: &Path) -> io::Result<()> {
    let here = dir.as_os_str().is_empty();
    let dir = File::open(if here { Path::new(".") } else { dir }).await?;
    dir.sync_all().await
}

/// A part of a log.
enum Part {
    /// With where its batch begins.
    Record(Record, u64),
    /// No record. If it is torn, something is missing in it: a crash may have left it.
    Bad { bytes: Range<u64>, torn: bool },
}

/// Goes through a log, from its beginning to its end.
struct Scan<'a> {
    pieces: Pieces<'a>,
    at: u64,
    len: u64,
}

impl Scan<'_> {
    async fn new(file: &File) -> io::Result<Scan<'_>> {
        let len = file.metadata().await?.len();
        let (pieces, at) = (Pieces::new(file), 0);
        Ok(Scan { pieces, at, len })
    }

    async fn next(&mut self) -> io::Result<Option<Part>> {
        if self.at == 0 {
            let there = self.pieces.get(0, BEGINNING.len()).await?;
            if there.is_empty() {
                return Ok(None);
            }
            if !there.starts_with(&BEGINNING) {
                let cut_off = BEGINNING.starts_with(there);
                return self.bad(cut_off).await.map(Some);
            }
            self.at = BEGINNING.len() as u64;
        }
        if self.at == self.len {
            return Ok(None);
        }
        match self.found(self.at).await? {
            Found::Whole {
                record,
                len,
                synced,
            } => {
                self.at += len as u64;
                Ok(Some(Part::Record(record, synced)))
            }
            Found::Needs(_) => self.bad(true).await.map(Some),
            Found::Bad => self.bad(false).await.map(Some),
        }
    }

    /// `Needs` if the file ends in it.
    async fn found(&mut self, at: u64) -> io::Result<Found> {
        let mut len = 0;
        loop {
            match Record::read(self.pieces.get(at, len).await?, at) {
                Found::Needs(more) if more > len && at + more as u64 <= self.len => len = more,
                found => return Ok(found),
            }
        }
    }

    /// From here to the next record, or to the end. `cut_off` if the record that
    /// begins here would go on behind the end.
    async fn bad(&mut self, cut_off: bool) -> io::Result<Part> {
        let (start, mut zeros, mut torn) = (self.at, 0, false);
        loop {
            // Of the sector that has the byte, what belongs to the bad ones.
            let byte = self.pieces.get(self.at, 1).await?[0];
            zeros = if byte == 0 { zeros + 1 } else { 0 };
            self.at += 1;
            let sector = (self.at - 1) / SECTOR * SECTOR;
            let at_end = self.at == self.len;
            let next = match at_end {
                true => None,
                false => Some(self.found(self.at).await?),
            };
            let over = at_end || matches!(next, Some(Found::Whole { .. }));
            if over || self.at.is_multiple_of(SECTOR) {
                torn |= zeros >= self.at - sector.max(start);
            }
            if at_end {
                torn |= cut_off || zeros > 0;
            }
            if over {
                let bytes = start..self.at;
                return Ok(Part::Bad { bytes, torn });
            }
        }
    }
}

/// A file, read in pieces from its beginning to its end.
struct Pieces<'a> {
    file: &'a File,
    /// What was read and may be asked for again.
    buf: Vec<u8>,
    /// Where it begins.
    start: u64,
}

impl Pieces<'_> {
    fn new(file: &File) -> Pieces<'_> {
        Pieces {
            file,
            buf: Vec::new(),
            start: 0,
        }
    }

    /// `len` bytes or more from `at` on, fewer at the end of the file. `at` never goes
    /// back.
    async fn get(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        if at + len as u64 > self.start + self.buf.len() as u64 {
            let over = self.buf.len().min((at - self.start) as usize);
            self.buf.drain(..over);
            self.start = at;
            while self.buf.len() < len {
                let done = self.buf.len();
                self.buf.reserve_exact(PIECE.max(len - done));
                let room = take(&mut self.buf).slice(done..);
                let (read, room) = self.file.read_at(room, at + done as u64).await;
                self.buf = room.into_inner();
                if read? == 0 {
                    break;
                }
            }
        }
        Ok(&self.buf[(at - self.start) as usize..])
    }
}
