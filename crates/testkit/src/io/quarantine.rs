//! [`Quarantine`]: buffers that are watched after their end.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use kinfolk_runtime::io::{IoBuf, IoBufMut};

/// The pattern with which the memory of a buffer is filled at its end.
pub(super) const PATTERN: u8 = 0xdb;

/// How many bytes are held back, by default.
const MOST: usize = 64 << 20;

struct HeldBuffers {
    boxes: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// How many bytes are held back, at most; of more, the oldest are checked and
    /// let go.
    most: usize,
    /// The faults found in buffers that were freed.
    wrong: Vec<String>,
    living: usize,
}

impl HeldBuffers {
    fn add(&mut self, mut bytes: Box<[u8]>) {
        bytes.fill(PATTERN);
        self.living -= 1;
        self.bytes += bytes.len();
        self.boxes.push_back(bytes);
        while self.bytes > self.most
            && let Some(oldest) = self.boxes.pop_front()
        {
            self.bytes -= oldest.len();
            self.wrong.extend(changed(&oldest));
        }
    }
}

/// Where freed memory was first written.
pub(super) fn wrong_from(bytes: &[u8]) -> Option<usize> {
    // The compiler must not assume that the bytes are unchanged.
    let bytes = std::hint::black_box(bytes);
    // Many bytes at once: nearly always they are unchanged.
    let (whole, rest) = bytes.as_chunks::<64>();
    if whole.iter().all(|part| *part == [PATTERN; 64]) && rest.iter().all(|byte| *byte == PATTERN) {
        return None;
    }
    bytes.iter().position(|byte| *byte != PATTERN)
}

/// The write into freed memory, in words.
fn changed(bytes: &[u8]) -> Option<String> {
    let at = wrong_from(bytes)?;
    let count = bytes.iter().filter(|byte| **byte != PATTERN).count();
    Some(format!(
        "{count} of {} bytes of a buffer were written after its end, from {at} on",
        bytes.len()
    ))
}

/// Makes buffers whose memory is not freed at their end but filled with a
/// pattern and held back: [`check`](Quarantine::check) detects later writes into
/// it, above all by a kernel. Works with every driver.
///
/// ```
/// use kinfolk_testkit::{Sim, io::Quarantine};
///
/// let quarantine = Quarantine::new();
/// let buf = quarantine.buf(64);
/// Sim::seeded(1).run(async move {
///     let (reader, writer) = kinfolk_runtime::io::pipe()?;
///     writer.write("hello").await.0?;
///     let (read, buf) = reader.read(buf).await;
///     assert_eq!((read?, &buf[..]), (5, &b"hello"[..]));
///     Ok::<_, kinfolk_core::Error>(())
/// }).unwrap();
/// assert_eq!(quarantine.living(), 0);
/// quarantine.check();
/// ```
#[derive(Clone)]
pub struct Quarantine(Arc<Mutex<HeldBuffers>>);

impl Default for Quarantine {
    fn default() -> Quarantine {
        Quarantine::new()
    }
}

impl Quarantine {
    /// A quarantine that is empty, and holds back up to 64 MiB.
    pub fn new() -> Quarantine {
        Quarantine::at_most(MOST)
    }

    /// A quarantine that holds back so many bytes at most: of more, the oldest
    /// are checked and freed.
    pub fn at_most(bytes: usize) -> Quarantine {
        Quarantine(Arc::new(Mutex::new(HeldBuffers {
            boxes: VecDeque::new(),
            bytes: 0,
            most: bytes,
            wrong: Vec::new(),
            living: 0,
        })))
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HeldBuffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer with room for so many bytes.
    pub fn buf(&self, room: usize) -> Quarantined {
        self.made(vec![0; room].into_boxed_slice(), 0)
    }

    /// A buffer with these bytes in it.
    pub fn filled(&self, bytes: impl AsRef<[u8]>) -> Quarantined {
        let bytes = bytes.as_ref();
        self.made(bytes.into(), bytes.len())
    }

    fn made(&self, bytes: Box<[u8]>, filled: usize) -> Quarantined {
        self.held().living += 1;
        Quarantined {
            bytes,
            filled,
            quarantine: self.clone(),
        }
    }

    /// How many of its buffers have not been dropped yet.
    pub fn living(&self) -> usize {
        self.held().living
    }

    /// Panics if a buffer was written after its end.
    #[track_caller]
    pub fn check(&self) {
        let held = self.held();
        let now = held.boxes.iter().filter_map(|bytes| changed(bytes));
        let wrong: Vec<String> = held.wrong.iter().cloned().chain(now).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("; "));
    }
}

impl std::fmt::Debug for Quarantine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.held();
        f.debug_struct("Quarantine")
            .field("living", &held.living)
            .field("held_back", &held.boxes.len())
            .finish_non_exhaustive()
    }
}

/// A buffer of a [`Quarantine`]: the bytes in it, and room for more.
#[derive(Debug)]
pub struct Quarantined {
    bytes: Box<[u8]>,
    filled: usize,
    quarantine: Quarantine,
}

impl Drop for Quarantined {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.quarantine.held().add(bytes);
    }
}

impl Deref for Quarantined {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl DerefMut for Quarantined {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.filled]
    }
}

// SAFETY: the bytes are on the heap, all of them are initialised, and they
// belong to this value alone.
unsafe impl IoBuf for Quarantined {
    fn ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    fn filled(&self) -> usize {
        self.filled
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Quarantined {
    fn ptr_mut(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    fn room(&self) -> usize {
        self.bytes.len()
    }

    unsafe fn set_filled(&mut self, bytes: usize) {
        self.filled = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "2 of 8 bytes of a buffer were written after its end, from 3 on")]
    fn who_writes_after_the_end_is_found_out() {
        let quarantine = Quarantine::new();
        let mut buf = quarantine.buf(8);
        let at = buf.ptr_mut();
        drop(buf);
        quarantine.check();
        // SAFETY: the memory is held back, and not read now.
        unsafe {
            at.add(3).write(1);
            at.add(7).write(1);
        }
        quarantine.check();
    }

    #[test]
    #[should_panic(expected = "1 of 4096 bytes of a buffer were written after its end")]
    fn what_is_let_go_was_checked() {
        let quarantine = Quarantine::at_most(1 << 16);
        let mut buf = quarantine.buf(4096);
        let at = buf.ptr_mut();
        drop(buf);
        // SAFETY: as above.
        unsafe { at.write(1) };
        for _ in 0..20 {
            drop(quarantine.buf(4096));
        }
        assert_eq!(quarantine.held().bytes, 1 << 16);
        quarantine.check();
    }

    #[test]
    fn a_buffer_is_one() {
        let quarantine = Quarantine::new();
        let mut buf = quarantine.filled("abc");
        assert_eq!((&*buf, buf.room()), (&b"abc"[..], 3));
        buf[0] = b'x';
        assert_eq!(&*buf, b"xbc");
        assert_eq!(quarantine.living(), 1);
        drop(buf);
        assert_eq!(quarantine.living(), 0);
        quarantine.check();
    }
}
