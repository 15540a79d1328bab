//! Numbers of threads, which are never given twice.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::sync::local;

local!(static NUMBER: Cell<u64> = Cell::new(0); fn with_number);

/// The number of this thread.
#[inline]
pub(crate) fn thread() -> u64 {
    with_number(|number| match number.get() {
        0 => begin(number),
        known => known,
    })
}

#[cold]
fn begin(number: &Cell<u64>) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    number.set(NEXT.fetch_add(1, Ordering::Relaxed));
    number.get()
}
