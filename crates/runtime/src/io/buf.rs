//! Buffers: an operation owns its buffer while it is in flight, and always returns it.

use std::fmt;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};

/// A buffer whose bytes can be written out.
///
/// An operation owns its buffer until the system has completed the operation, even if the
/// waiting future is dropped.
///
/// # Safety
/// As long as the value is not moved and not used, `ptr` stays the same, and
/// `filled` bytes from there on are initialised, and no code writes them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be handed over to an operation",
    label = "the operation owns its buffer",
    note = "the operation owns its buffer: pass a `Vec<u8>`, `String` or `Bytes` and take it back"
)]
pub unsafe trait IoBuf: Send + 'static {
    /// Where it begins.
    fn ptr(&self) -> *const u8;

    /// How many bytes from there on are initialised.
    fn filled(&self) -> usize;

    /// A part of it: `buf.slice(4..)`. The whole comes back with
    /// [`Slice::into_inner`].
    ///
    /// # Panics
    /// If the part begins behind the filled bytes, or ends before it begins.
    fn slice(self, range: impl RangeBounds<usize>) -> Slice<Self>
    where
        Self: Sized,
    {
        let begin = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at + 1,
            Bound::Excluded(&at) => at,
            Bound::Unbounded => usize::MAX,
        };
        assert!(
            begin <= self.filled(),
            "a slice cannot begin at {begin} in a buffer with {} bytes",
            self.filled()
        );
        assert!(
            begin <= end,
            "a slice cannot begin at {begin} and end at {end}"
        );
        Slice {
            buf: self,
            begin,
            end,
        }
    }
}

/// A buffer that bytes can be read into, from its beginning up to its capacity.
///
/// # Safety
/// As for [`IoBuf`], and `room` bytes from `ptr_mut` on may be written while
/// no other code uses the value. `ptr_mut` returns the same address as
/// `ptr`, `filled` is at most `room`, and after `set_filled(n)` it is at least `n`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be handed over to an operation",
    label = "the operation owns its buffer",
    note = "the operation owns its buffer: pass a `Vec<u8>`, `[u8; N]` or `BytesMut` and take it back"
)]
pub unsafe trait IoBufMut: IoBuf {
    /// Where it begins.
    fn ptr_mut(&mut self) -> *mut u8;

    /// How many bytes can be written from there on.
    fn room(&self) -> usize;

    /// The first `bytes` have been written: where its length can change, that is
    /// its length now.
    ///
    /// # Safety
    /// These bytes have been initialised, and there is room for them.
    unsafe fn set_filled(&mut self, bytes: usize);
}

// SAFETY: the bytes of a Vec lie on the heap, and `len` of them are filled.
unsafe impl IoBuf for Vec<u8> {
    fn ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; its capacity may be written.
unsafe impl IoBufMut for Vec<u8> {
    fn ptr_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn room(&self) -> usize {
        self.capacity()
    }

    unsafe fn set_filled(&mut self, bytes: usize) {
        // SAFETY: the caller has written them, within the capacity.
        unsafe { self.set_len(bytes) };
    }
}

/// Buffers whose length is fixed: all of it is filled, all of it is room.
macro_rules! fixed {
    ($($(#[$why:meta])* [$($generic:tt)*] $name:ty),* $(,)?) => {$(
        // SAFETY: the bytes lie on the heap, or in the value, which is not moved.
        unsafe impl<$($generic)*> IoBuf for $name {
            fn ptr(&self) -> *const u8 {
                self.as_ptr()
            }

            fn filled(&self) -> usize {
                self.len()
            }
        }

        // SAFETY: as above.
        unsafe impl<$($generic)*> IoBufMut for $name {
            fn ptr_mut(&mut self) -> *mut u8 {
                self.as_mut_ptr()
            }

            fn room(&self) -> usize {
                self.len()
            }

            unsafe fn set_filled(&mut self, _bytes: usize) {}
        }
    )*};
}

fixed!([] Box<[u8]>, [const N: usize] [u8; N], [const N: usize] Box<[u8; N]>);

/// Bytes that can be written out and never change.
macro_rules! constant {
    ($($name:ty),* $(,)?) => {$(
        // SAFETY: the bytes lie still for the life of the program, or on the heap.
        unsafe impl IoBuf for $name {
            fn ptr(&self) -> *const u8 {
                self.as_ptr()
            }

            fn filled(&self) -> usize {
                self.len()
            }
        }
    )*};
}

constant!(&'static [u8], &'static str, String, bytes::Bytes);

// SAFETY: shared bytes: no code writes them.
unsafe impl IoBuf for std::sync::Arc<[u8]> {
    fn ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }

    fn filled(&self) -> usize {
        self.len()
    }
}

// SAFETY: the bytes lie on the heap and are this value's alone.
unsafe impl IoBuf for bytes::BytesMut {
    fn ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; its capacity may be written.
unsafe impl IoBufMut for bytes::BytesMut {
    fn ptr_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn room(&self) -> usize {
        self.capacity()
    }

    unsafe fn set_filled(&mut self, bytes: usize) {
        // SAFETY: the caller has written them, within the capacity.
        unsafe { self.set_len(bytes) };
    }
}

/// A part of a buffer; made by [`IoBuf::slice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice<B> {
    buf: B,
    begin: usize,
    end: usize,
}

impl<B> Slice<B> {
    /// Returns the whole buffer.
    pub fn into_inner(self) -> B {
        self.buf
    }

    /// Returns where the slice begins in the whole buffer.
    pub fn begin(&self) -> usize {
        self.begin
    }
}

// SAFETY: a part of what the whole promises.
unsafe impl<B: IoBuf> IoBuf for Slice<B> {
    fn ptr(&self) -> *const u8 {
        // SAFETY: `begin` lies within the filled bytes, checked when it was made;
        // what was read since may have shortened the whole, not its room.
        unsafe { self.buf.ptr().add(self.begin) }
    }

    fn filled(&self) -> usize {
        self.buf.filled().min(self.end).saturating_sub(self.begin)
    }
}

// SAFETY: as above.
unsafe impl<B: IoBufMut> IoBufMut for Slice<B> {
    fn ptr_mut(&mut self) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.buf.ptr_mut().add(self.begin) }
    }

    fn room(&self) -> usize {
        self.buf.room().min(self.end).saturating_sub(self.begin)
    }

    unsafe fn set_filled(&mut self, bytes: usize) {
        // SAFETY: what lies before the part was filled when the part was made,
        // and the caller has written the rest.
        unsafe { self.buf.set_filled(self.begin + bytes) };
    }
}

impl<B: IoBuf> Deref for Slice<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: filled, and ours while no other code has the buffer.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.filled()) }
    }
}

impl<B: IoBufMut> DerefMut for Slice<B> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr_mut(), self.filled()) }
    }
}

/// A buffer for direct i/o: its address and its length are multiples of `ALIGN`. What the
/// system does with an unaligned buffer differs from machine to machine, so alignment is a
/// type here.
pub struct Aligned<const ALIGN: usize = 4096> {
    ptr: std::ptr::NonNull<u8>,
    len: usize,
}

impl<const ALIGN: usize> Aligned<ALIGN> {
    /// Makes a buffer of `len` zeroed bytes.
    ///
    /// # Panics
    /// If `len` is zero or no multiple of `ALIGN`, or `ALIGN` no power of two.
    pub fn zeroed(len: usize) -> Aligned<ALIGN> {
        assert!(
            len > 0 && len.is_multiple_of(ALIGN),
            "the length of a buffer for direct i/o must be a multiple of {ALIGN}, not {len}"
        );
        let layout = Self::layout(len);
        // SAFETY: the size is not zero.
        let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(ptr) = std::ptr::NonNull::new(ptr) else {
            std::alloc::handle_alloc_error(layout);
        };
        Aligned { ptr, len }
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, ALIGN).expect("an alignment is a power of two")
    }
}

// SAFETY: it owns its bytes, as a Box does.
unsafe impl<const ALIGN: usize> Send for Aligned<ALIGN> {}
// SAFETY: as above.
unsafe impl<const ALIGN: usize> Sync for Aligned<ALIGN> {}

impl<const ALIGN: usize> Deref for Aligned<ALIGN> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes, zeroed when they were made, are ours.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<const ALIGN: usize> DerefMut for Aligned<ALIGN> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<const ALIGN: usize> Drop for Aligned<ALIGN> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.ptr.as_ptr(), Self::layout(self.len)) };
    }
}

impl<const ALIGN: usize> fmt::Debug for Aligned<ALIGN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned<{ALIGN}>({} bytes)", self.len)
    }
}

fixed!([const ALIGN: usize] Aligned<ALIGN>);

fixed!([] super::RegisteredBuf);

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buf: &mut impl IoBufMut, bytes: &[u8]) {
        assert!(bytes.len() <= buf.room());
        // SAFETY: there is room, and what is written is filled.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.ptr_mut(), bytes.len());
            buf.set_filled(bytes.len());
        }
    }

    #[test]
    fn a_vec_is_filled_up_to_its_capacity() {
        let mut buf = Vec::with_capacity(8);
        fill(&mut buf, b"abc");
        assert_eq!(buf, b"abc");
        fill(&mut buf, b"x");
        assert_eq!(buf, b"x", "its length is what was read last");
    }

    #[test]
    fn a_slice_keeps_what_lies_before_it() {
        let buf = {
            let mut buf = Vec::with_capacity(8);
            buf.extend(b"head");
            buf
        };
        let mut part = buf.slice(4..);
        assert_eq!(part.room(), 4);
        fill(&mut part, b"tail");
        assert_eq!(&*part, b"tail");
        assert_eq!(part.into_inner(), b"headtail");
        let part = String::from("abcdef").slice(1..3);
        assert_eq!(&*part, b"bc");
        assert_eq!(part.begin(), 1);
    }

    #[test]
    #[should_panic(expected = "a slice cannot begin at 5 in a buffer with 3 bytes")]
    fn a_slice_begins_within_what_is_filled() {
        let _ = Vec::from(*b"abc").slice(5..);
    }

    #[test]
    fn fixed_buffers_keep_their_length() {
        let mut array = [0_u8; 4];
        fill(&mut array, b"ab");
        assert_eq!(&array, b"ab\0\0");
        let mut boxed = vec![0_u8; 4].into_boxed_slice();
        fill(&mut boxed, b"abcd");
        assert_eq!(&*boxed, b"abcd");
    }

    #[test]
    fn aligned_buffers_are_aligned() {
        for _ in 0..8 {
            let buf = Aligned::<4096>::zeroed(8192);
            assert_eq!(buf.ptr().addr() % 4096, 0);
            assert!(buf.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    #[should_panic(expected = "must be a multiple of 512")]
    fn an_aligned_buffer_has_an_aligned_length() {
        let _ = Aligned::<512>::zeroed(100);
    }
}
