//! Writes that wait for the disk.

use std::io;
use std::ops::Range;
use std::panic::Location;

use super::File;
use crate::io::IoBuf;
use crate::io::ops::{SyncRange, WriteThenSync};

/// The longest part that is written out at once: a multiple of every page.
const LONGEST: u64 = 1 << 30;

impl File {
    /// Writes all of `buf` and waits for `fdatasync`, which covers everything that was written
    /// to this file before. Both are submitted together.
    ///
    /// Not for a file that was opened to append: a write that is tried again would be there
    /// twice.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, a part of `buf` may have been written, and it is
    /// not known what is on the disk: only `Ok` means that all of it is.
    ///
    /// # Errors
    /// `WriteZero` if the system accepts no more bytes; other errors of the system. After an
    /// error of `fdatasync` it is not known what is on the disk, and trying again does not
    /// tell.
    #[track_caller]
    pub fn write_then_sync<B: IoBuf>(
        &self,
        buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<()>, B)> + Send {
        self.write_then_sync_for(Location::caller(), buf, at)
    }

    /// As above; snapshots and reports name `site`.
    async fn write_then_sync_for<B: IoBuf>(
        &self,
        site: &'static Location<'static>,
        buf: B,
        at: u64,
    ) -> (io::Result<()>, B) {
        let (mut buf, mut done) = (buf, 0);
        loop {
            let rest = WriteThenSync::new(self.fd.clone(), buf.slice(done..), at + done as u64);
            let (written, part) = self.op(rest).at(site).await;
            buf = part.into_inner();
            match written {
                // What was written before has gone to the disk with it.
                Ok(bytes) if done + bytes == buf.filled() => return (Ok(()), buf),
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(bytes) => done += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
    }

    /// Calls `sync_file_range`: writes this part of the file from the page cache to the disk,
    /// and waits for that. It keeps the amount small that [`sync_data`](File::sync_data) has to
    /// write later; alone it promises nothing after a power cut.
    ///
    /// # Cancellation
    /// A *point*.
    ///
    /// # Errors
    /// Errors of the system; not every file system supports it.
    #[track_caller]
    pub fn sync_range(&self, range: Range<u64>) -> impl Future<Output = io::Result<()>> + Send {
        self.sync_range_for(Location::caller(), range)
    }

    /// As above; snapshots and reports name `site`.
    async fn sync_range_for(
        &self,
        site: &'static Location<'static>,
        range: Range<u64>,
    ) -> io::Result<()> {
        let mut at = range.start;
        // No bytes would mean all from here on.
        while at < range.end {
            let len = LONGEST.min(range.end - at);
            let part = SyncRange::new(self.fd.clone(), at, len as u32);
            self.op(part).at(site).await?;
            at += len;
        }
        Ok(())
    }
}
