//! What the simulated kernel says of a program that lends it the same memory
//! twice. Safe code cannot: a buffer belongs to its operation. So here are buffers
//! that break their promise.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use kinfolk_core::{Error, scope};
use kinfolk_runtime::io::{IoBuf, IoBufMut, pipe};
use kinfolk_testkit::Sim;

/// A part of memory that others may have a part of.
struct Part(Arc<[AtomicU8; 16]>, Range<usize>);

// SAFETY: this test breaks the promise that the bytes are nobody else's on
// purpose. They are atomic and written on one thread.
unsafe impl IoBuf for Part {
    fn ptr(&self) -> *const u8 {
        self.0[self.1.start].as_ptr()
    }

    fn filled(&self) -> usize {
        0
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Part {
    fn ptr_mut(&mut self) -> *mut u8 {
        self.0[self.1.start].as_ptr()
    }

    fn room(&self) -> usize {
        self.1.len()
    }

    unsafe fn set_filled(&mut self, _bytes: usize) {}
}

/// Two operations read into these parts of one piece of memory, at once or one
/// after the other; what the kernel says of it.
fn says(one: Range<usize>, two: Range<usize>, at_once: bool) -> Option<String> {
    let mut sim = Sim::seeded(1);
    let kernel = sim.io();
    let ran = sim.run(async move {
        let memory = Arc::new([const { AtomicU8::new(0) }; 16]);
        let (reader, writer) = pipe()?;
        let reader = &Arc::new(reader);
        let read = |part: &Range<usize>| {
            let (part, reader) = (Part(memory.clone(), part.clone()), reader.clone());
            async move { reader.read(part).await.0.map(drop).map_err(Error::from) }
        };
        scope(async |s| {
            let first = s.spawn(read(&one));
            if !at_once {
                writer.write("x").await.0?;
                first.await?;
                s.launch(read(&two));
            } else {
                s.launch(read(&two));
                drop(first.into_job());
            }
            // Both have begun before there is something to read.
            kinfolk_core::sleep(std::time::Duration::from_millis(1)).await?;
            writer.write("y").await.0?;
            writer.write("z").await.0?;
            drop(writer);
            Ok::<_, Error>(())
        })
        .await?;
        assert!(memory.iter().any(|byte| byte.load(SeqCst) != 0));
        Ok::<_, Error>(())
    });
    ran.expect("two reads");
    let wrong = catch_unwind(AssertUnwindSafe(|| kernel.check())).err();
    match &wrong {
        // It has been said; `finish` would say it again.
        Some(_) => std::mem::forget(sim),
        None => sim.finish(),
    }
    wrong.map(|words| *words.downcast::<String>().expect("words"))
}

#[test]
fn two_reads_into_the_same_memory_are_found_out() {
    for (one, two) in [
        (0..8, 0..8),
        (0..8, 4..12),
        (4..12, 0..8),
        (0..16, 4..8),
        (4..8, 0..16),
        (0..8, 7..8),
    ] {
        let words = says(one.clone(), two.clone(), true);
        let words = words.unwrap_or_else(|| panic!("{one:?} and {two:?}: nothing was said"));
        let wrong = "two operations read into the same memory";
        assert!(words.contains(wrong), "{one:?} and {two:?}: {words}");
    }
}

#[test]
fn reads_side_by_side_and_one_after_the_other_are_right() {
    for (one, two) in [(0..8, 8..16), (8..16, 0..8), (4..8, 12..16)] {
        assert_eq!(says(one, two, true), None);
    }
    for (one, two) in [(0..8, 0..8), (0..8, 4..12), (0..16, 4..8)] {
        assert_eq!(says(one, two, false), None);
    }
}
