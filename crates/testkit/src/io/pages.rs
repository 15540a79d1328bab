//! [`HeldPages`]: memory for pools that is watched after it was freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::quarantine::{PATTERN, wrong_from};

/// Only memory that begins at a multiple of this is held back.
const PAGE: usize = 4096;

/// How many pieces are held back; of more, the oldest are checked and freed.
const MOST: usize = 512;

/// How many bytes are held back at most.
const MOST_BYTES: usize = 16 << 20;

#[derive(Clone, Copy)]
struct PagePiece {
    at: usize,
    size: usize,
}

impl PagePiece {
    fn layout(self) -> Layout {
        // SAFETY: the layout was valid when the piece was allocated.
        unsafe { Layout::from_size_align_unchecked(self.size, PAGE) }
    }

    fn bytes(&self) -> &[u8] {
        let at = std::ptr::with_exposed_provenance(self.at);
        // SAFETY: it is filled, and held back while this value exists.
        unsafe { std::slice::from_raw_parts(at, self.size) }
    }
}

/// An allocator must not allocate: all its data is in place.
struct HeldPieces {
    pieces: [PagePiece; MOST],
    first: usize,
    count: usize,
    bytes: usize,
    /// How many pieces were held back so far.
    freed: usize,
    /// How many of the freed pieces had been written, and where the first of
    /// them was.
    wrong: usize,
    wrong_at: usize,
}

impl HeldPieces {
    fn add(&mut self, piece: PagePiece) {
        while self.count == MOST || (self.count > 0 && self.bytes + piece.size > MOST_BYTES) {
            self.let_go();
        }
        self.pieces[(self.first + self.count) % MOST] = piece;
        self.count += 1;
        self.bytes += piece.size;
        self.freed += 1;
    }

    /// Checks and frees the oldest piece.
    fn let_go(&mut self) {
        let oldest = self.pieces[self.first];
        self.look_at(&oldest);
        self.first = (self.first + 1) % MOST;
        self.count -= 1;
        self.bytes -= oldest.size;
        let at = std::ptr::with_exposed_provenance_mut(oldest.at);
        // SAFETY: the code that freed it left it to this allocator, and it is in no other
        // place. Noticed by `what_was_let_go_was_looked_at`.
        unsafe { System.dealloc(at, oldest.layout()) };
    }

    fn look_at(&mut self, piece: &PagePiece) {
        if let Some(at) = wrong_from(piece.bytes()) {
            if self.wrong == 0 {
                self.wrong_at = at;
            }
            self.wrong += 1;
        }
    }
}

/// An allocator that does not free pages but fills them with a pattern and holds
/// them back: [`check`](HeldPages::check) detects later writes into them, above all
/// by a kernel. Pages are allocations that begin at a multiple of 4096: such as the
/// buffers of a [`BufferPool`](kinfolk_runtime::io::BufferPool), of
/// [`registered`](kinfolk_runtime::io::registered) and
/// [`Aligned`](kinfolk_runtime::io::Aligned). Other allocations go to the system's
/// allocator.
///
/// ```
/// use kinfolk_testkit::io::HeldPages;
///
/// #[global_allocator]
/// static PAGES: HeldPages = HeldPages::new();
///
/// drop(kinfolk_runtime::io::Aligned::<4096>::zeroed(8192));
/// assert_eq!(PAGES.freed(), 1);
/// PAGES.check();
/// ```
pub struct HeldPages(Mutex<HeldPieces>);

impl HeldPages {
    /// An allocator that holds nothing back yet.
    #[expect(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> HeldPages {
        HeldPages(Mutex::new(HeldPieces {
            pieces: [PagePiece { at: 0, size: 0 }; MOST],
            first: 0,
            count: 0,
            bytes: 0,
            freed: 0,
            wrong: 0,
            wrong_at: 0,
        }))
    }

    fn held(&self) -> MutexGuard<'_, HeldPieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pieces of memory were held back so far.
    pub fn freed(&self) -> usize {
        self.held().freed
    }

    /// Panics if pages were written after they were freed.
    #[track_caller]
    pub fn check(&self) {
        let mut held = self.held();
        for n in 0..held.count {
            let piece = held.pieces[(held.first + n) % MOST];
            held.look_at(&piece);
        }
        let (wrong, at) = (std::mem::take(&mut held.wrong), held.wrong_at);
        // A panic allocates.
        drop(held);
        assert!(
            wrong == 0,
            "{wrong} pieces of memory were written after they were freed, one from {at} on"
        );
    }
}

impl std::fmt::Debug for HeldPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldPages({} freed)", self.freed())
    }
}

// SAFETY: passes every call on to the system's allocator, and frees pages later.
unsafe impl GlobalAlloc for HeldPages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.align() != PAGE {
            // SAFETY: as above.
            return unsafe { System.dealloc(at, layout) };
        }
        // SAFETY: the caller gives the memory up.
        unsafe { at.write_bytes(PATTERN, layout.size()) };
        let piece = PagePiece {
            at: at.expose_provenance(),
            size: layout.size(),
        };
        self.held().add(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(pages: &HeldPages, size: usize) -> *mut u8 {
        let layout = Layout::from_size_align(size, PAGE).expect("a layout");
        // SAFETY: not empty, and of this allocator.
        unsafe {
            let at = pages.alloc_zeroed(layout);
            pages.dealloc(at, layout);
            at
        }
    }

    #[test]
    #[should_panic(expected = "1 pieces of memory were written after they were freed, one from 5")]
    fn who_writes_into_freed_pages_is_found_out() {
        let pages = HeldPages::new();
        let at = freed(&pages, PAGE);
        freed(&pages, PAGE);
        pages.check();
        // SAFETY: the memory is held back, and not read now.
        unsafe { at.add(5).write(1) };
        pages.check();
    }

    #[test]
    #[should_panic(expected = "1 pieces of memory were written")]
    fn what_was_let_go_was_looked_at() {
        let pages = HeldPages::new();
        // SAFETY: as above.
        unsafe { freed(&pages, PAGE).write(1) };
        for _ in 0..2 * MOST {
            freed(&pages, PAGE);
        }
        assert_eq!(pages.held().count, MOST);
        pages.check();
    }

    #[test]
    fn what_is_held_back_has_a_bound() {
        let pages = HeldPages::new();
        for _ in 0..100 {
            freed(&pages, 1 << 20);
        }
        assert!(pages.held().bytes <= MOST_BYTES);
        assert_eq!(pages.freed(), 100);
        pages.check();
    }
}
