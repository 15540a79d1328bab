//! Reading into several buffers at once, and writing from them.

use std::io;

use super::File;
use crate::io::ops::{ReadVectored, WriteVectored};
use crate::io::{IoBuf, IoBufMut, Offset};

impl File {
    /// Reads into `bufs`, one after the other, up to their capacity. Returns how many bytes
    /// were read in all: 0 at the end of the file. The system accepts 1,024 buffers at once;
    /// further ones stay empty.
    ///
    /// # Cancellation
    /// A *point*. The buffers come back either way.
    #[track_caller]
    pub fn read_vectored_at<B: IoBufMut>(
        &self,
        bufs: Vec<B>,
        at: u64,
    ) -> impl Future<Output = (io::Result<usize>, Vec<B>)> + Send + use<B> {
        self.op(ReadVectored::new(self.fd.clone(), bufs, Offset::At(at)))
    }

    /// Writes the bytes of `bufs`, one after the other. Returns how many bytes were written in
    /// all. The system accepts 1,024 buffers at once.
    ///
    /// # Cancellation
    /// A *point*. The buffers come back either way.
    #[track_caller]
    pub fn write_vectored_at<B: IoBuf>(
        &self,
        bufs: Vec<B>,
        at: u64,
    ) -> impl Future<Output = (io::Result<usize>, Vec<B>)> + Send + use<B> {
        self.op(WriteVectored::new(self.fd.clone(), bufs, Offset::At(at)))
    }
}
