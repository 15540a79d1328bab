//! Until it is on the disk.

use std::io;
use std::ops::Range;
use std::panic::Location;

use super::File;
use crate::io::IoBuf;
use crate::io::ops::{SyncRange, WriteThenSync};

/// The longest part that is written out at once: a multiple of every page.
const LONGEST: u64 = 1 << 30;

impl File {
    /// Writes all of `buf`, and waits until it is on the disk, with everything
    /// that was written to this file before. Both are one trip to the system.
    ///
    /// Not for a file that was opened to append: what is tried again would be
    /// there twice.
    ///
    /// # Cancellation
    /// A *point*. Told half-way, part of it was written, and nothing is known of
    /// what is on the disk: only `Ok` means that all of it is.
    ///
    /// # Errors
    /// `WriteZero` if the system takes no more; those of the system. After an
    /// error of the disk nothing is known of what is on it, and trying again does
    /// not find out.
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

    /// What was written to this part of the file is given to the disk, and
    /// waited for. To keep the amount small that
    /// [`sync_data`](File::sync_data) has to wait for later: by itself it
    /// promises nothing after a power cut.
    ///
    /// # Cancellation
    /// A *point*.
    ///
    /// # Errors
    /// Those of the system; not every file system can.
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
