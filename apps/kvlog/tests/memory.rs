//! A log of any length is read with little memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kinfolk::{Error, Runtime, scope};
use kvlog::record::Record;
use kvlog::store;

/// The system's, counted.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is left to the system's allocator; the counting touches no memory of it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above; `ptr` came from there.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

const MIB: usize = 1 << 20;

#[test]
fn a_long_log_is_opened_with_little_memory() {
    let dir = std::env::temp_dir().join(format!("kvlog-memory-{}", std::process::id()));
    let rt = Runtime::new().expect("a runtime");
    let ran = rt.block_on(async {
        let (store, committer) = store::open(&dir).await?;
        scope(async |s| {
            s.spawn_atomic(committer.run()).into_job();
            for id in 0..48 {
                let value = Some(vec![id as u8; MIB / 2]);
                let (id, key) = (id.to_string(), "key".to_owned());
                store.write(Record { id, key, value }).await?;
            }
            drop(store);
            Ok(())
        })
        .await?;
        let before = NOW.load(Relaxed);
        MOST.store(before, Relaxed);
        let (store, committer) = store::open(&dir).await?;
        let (kept, most) = (NOW.load(Relaxed) - before, MOST.load(Relaxed) - before);
        assert_eq!(store.get("key").map(|value| value.len()), Some(MIB / 2));
        scope(async |s| {
            s.spawn_atomic(committer.run()).into_job();
            drop(store);
            Ok(())
        })
        .await?;
        Ok::<_, Error>((kept, most))
    });
    std::fs::remove_dir_all(&dir).expect("a directory");
    let (kept, most) = ran.expect("a store");
    assert!(kept < 2 * MIB, "{kept} bytes are kept of a log of 24 MiB");
    assert!(
        most < 8 * MIB,
        "{most} bytes were needed for a log of 24 MiB"
    );
}
