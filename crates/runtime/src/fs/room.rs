//! The length of a file, and the disk space that it has.

use std::io;

use kinfolk_core::blocking;

use super::File;
use crate::blocking::{For, on_threads};
use crate::io::ops::Allocate;

impl File {
    /// Allocates disk space for this part of the file (`fallocate`). A shorter file is
    /// extended to the end of the part; new bytes are zero.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the space may have been allocated.
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

    /// Truncates or extends the file to this length; new bytes are zero. The call runs on a
    /// thread of the blocking pool.
    ///
    /// # Cancellation
    /// A *point* until it has begun, like [`blocking`].
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
