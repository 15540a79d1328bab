//! How long a file is, and what it has room for.

use std::io;

use kinfolk_core::blocking;

use super::File;
use crate::blocking::{For, on_threads};
use crate::io::ops::Allocate;

impl File {
    /// Sees to it that there is room on the disk for this part of the file. The
    /// file is as long as that afterwards, if it was not before; what is new is
    /// zero.
    ///
    /// # Cancellation
    /// A *point*. Told, there may be room.
    ///
    /// # Errors
    /// `StorageFull`; where the file system cannot, `Unsupported`.
    #[track_caller]
    pub fn allocate(
        &self,
        at: u64,
        len: u64,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.op(Allocate::new(self.fd.clone(), at, len))
    }

    /// Gives the disk space of this part of the file back to the system (`fallocate` with
    /// `FALLOC_FL_PUNCH_HOLE`). The part reads as zeros afterwards. The length of the file
    /// does not change, also where the part reaches beyond the end.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the hole may be there or not.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is 0; `Unsupported` where the file system has no holes.
    #[track_caller]
    pub fn punch_hole(
        &self,
        at: u64,
        len: u64,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.op(Allocate::hole(self.fd.clone(), at, len))
    }

    /// Makes the file so long: what lies behind is gone, what is new is zero.
    /// On a thread that may block.
    ///
    /// # Cancellation
    /// A *point* until it has begun, as [`blocking`].
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn set_len(&self, len: u64) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let fd = self.fd.clone();
        let call = blocking(move |_| fd.handle().system().set_len(fd.raw(), len));
        let call = on_threads(For::Files, call);
        async move { call.await.map_err(io::Error::other)? }
    }
}
