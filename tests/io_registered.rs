//! Registered buffers on the native runtime: who registers them, and what happens
//! to the memory. What every driver promises is in `io_suite`.

use std::time::Duration;

use kinfolk_core::{Error, scope};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::fs::{File, OpenOptions};
use kinfolk_runtime::io::{Aligned, IoBuf, IoDriver, RegisteredBufs, registered};
use kinfolk_testkit::guarded;

const PAGE: usize = 4096;

/// A file with a page of each number, removed at the end.
struct Pages(std::path::PathBuf);

impl Pages {
    fn new(name: &str) -> Pages {
        let path = std::env::temp_dir().join(format!("kinfolk-{name}-{}", std::process::id()));
        let bytes: Vec<u8> = (0..=255).flat_map(|page| [page; PAGE]).collect();
        std::fs::write(&path, bytes).expect("a scratch file");
        Pages(path)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn runtime(driver: IoDriver, workers: usize) -> Runtime {
    let builder = Runtime::builder().workers(workers).io(driver);
    builder.build().expect("a runtime")
}

fn done(rt: Runtime) {
    let report = rt.shutdown(Duration::from_secs(1)).expect("a report");
    assert!(report.is_clean(), "{report}");
}

/// One page into a buffer of the pool.
async fn read_page(file: &File, pool: &RegisteredBufs, page: u8) -> Result<(), Error> {
    let mut buf = pool.take().await?;
    buf.fill(!page);
    let (read, buf) = file.read_exact_at(buf, u64::from(page) * PAGE as u64).await;
    read?;
    assert!(buf.iter().all(|byte| *byte == page), "page {page}");
    Ok(())
}

#[test]
fn each_ring_that_gets_one_registers_the_pool() {
    guarded("registers", |watched| {
        let pages = Pages::new("registers");
        for workers in 0..3 {
            let rt = runtime(IoDriver::Ring, workers);
            watched.watch(rt.tree());
            let pool = registered(4, PAGE);
            assert_eq!(pool.rings(), 0, "nobody has used it");
            rt.block_on(async {
                let file = std::sync::Arc::new(File::open(&pages.0).await?);
                scope(async |s| {
                    for page in 0..=255 {
                        let (file, pool) = (file.clone(), pool.clone());
                        s.launch(async move { read_page(&file, &pool, page).await });
                    }
                    Ok(())
                })
                .await
            })
            .expect("pages");
            let rings = pool.rings();
            assert!((1..=workers.max(1)).contains(&rings), "{rings} rings");
            assert_eq!(pool.free(), 4);
            done(rt);
            assert_eq!(pool.rings(), 0, "the rings are gone");
        }
    });
}

#[test]
fn without_a_ring_they_are_buffers_like_others() {
    guarded("no ring", |watched| {
        let pages = Pages::new("no-ring");
        let rt = runtime(IoDriver::Readiness, 1);
        watched.watch(rt.tree());
        let pool = registered(1, PAGE);
        rt.block_on(async {
            let file = File::open(&pages.0).await?;
            read_page(&file, &pool, 9).await
        })
        .expect("a page");
        assert_eq!(pool.rings(), 0);
        done(rt);
    });
}

/// A ring has room for 64: what it does not register is read all the same, and
/// the room of pools that are gone is used again.
#[test]
fn pools_beyond_the_room_of_a_ring_are_used_as_they_are() {
    guarded("many pools", |watched| {
        let pages = Pages::new("many-pools");
        let rt = runtime(IoDriver::Ring, 0);
        watched.watch(rt.tree());
        rt.block_on(async {
            let file = File::open(&pages.0).await?;
            for _ in 0..3 {
                let pools: Vec<_> = (0..70).map(|_| registered(1, PAGE)).collect();
                for (pool, page) in pools.iter().zip(0..) {
                    read_page(&file, pool, page).await?;
                }
                let registered: usize = pools.iter().map(RegisteredBufs::rings).sum();
                assert_eq!(registered, 64);
            }
            Ok::<_, Error>(())
        })
        .expect("pages");
        done(rt);
    });
}

/// The kernel works on the pages that it was shown. If memory of a pool that is
/// gone were used for something else too soon, these reads would go elsewhere.
#[test]
fn memory_that_was_registered_can_be_used_for_something_else() {
    guarded("used again", |watched| {
        let pages = Pages::new("used-again");
        let rt = runtime(IoDriver::Ring, 0);
        watched.watch(rt.tree());
        rt.block_on(async {
            let file = File::open(&pages.0).await?;
            // Long enough to come from the system each time, and to go back to it.
            let long = 33 << 20;
            for page in 1..4_u8 {
                let pool = registered(1, long);
                let part = pool.take().await?.slice(..4 * PAGE);
                let (read, _) = file.read_exact_at(part, 0).await;
                read?;
                drop(pool);
                for _ in 0..2 {
                    let buf: Aligned = Aligned::zeroed(long);
                    let at = u64::from(page) * PAGE as u64;
                    let part = buf.slice(..4 * PAGE);
                    let (read, part) = file.read_exact_at(part, at).await;
                    read?;
                    let last = page + 3;
                    assert!(part[..PAGE].iter().all(|byte| *byte == page), "page {page}");
                    assert!(part[3 * PAGE..].iter().all(|byte| *byte == last));
                }
            }
            Ok::<_, Error>(())
        })
        .expect("pages");
        done(rt);
    });
}

#[test]
fn they_do_for_direct_io() {
    guarded("direct", |watched| {
        let pages = Pages::new("direct-registered");
        let rt = runtime(IoDriver::Ring, 0);
        watched.watch(rt.tree());
        rt.block_on(async {
            let Ok(file) = OpenOptions::new().read(true).open_direct(&pages.0).await else {
                // Not every file system can.
                return Ok(());
            };
            let pool = registered(3, 2 * PAGE);
            let bufs: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
            assert_eq!(bufs.len(), 3);
            for buf in bufs {
                assert!(buf.as_ptr().addr().is_multiple_of(PAGE));
                let (read, buf) = file.read_at(buf, 5 * PAGE as u64).await;
                assert_eq!(read?, 2 * PAGE);
                assert!(buf[..PAGE].iter().all(|byte| *byte == 5));
                assert!(buf[PAGE..].iter().all(|byte| *byte == 6));
            }
            assert_eq!(pool.rings(), 1);
            Ok::<_, Error>(())
        })
        .expect("pages");
        done(rt);
    });
}

#[test]
fn each_begins_at_a_page_whatever_its_size() {
    let pool = registered(3, 100);
    let bufs: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
    for buf in &bufs {
        assert_eq!((buf.len(), buf.as_ptr().addr() % PAGE), (100, 0));
        assert!(buf.iter().all(|byte| *byte == 0));
    }
    assert_eq!(pool.free(), 0);
    let debug = format!("{pool:?} {:?}", bufs[0]);
    assert_eq!(
        debug,
        "RegisteredBufs { free: 0, size: 100, rings: 0 } RegisteredBuf(100 bytes)"
    );
    drop(bufs);
    assert_eq!(pool.free(), 3);
}

#[test]
#[should_panic(expected = "a pool must have at least one buffer")]
fn a_pool_of_nothing_is_refused() {
    let _ = registered(0, PAGE);
}

/// As many as there are, each with bytes of its own; one that comes back is out again.
#[test]
fn io_5_each_registered_buffer_is_out_once() {
    let pool = registered(4, PAGE);
    let mut out: Vec<_> = (0..4)
        .map(|_| pool.try_take().expect("one of four"))
        .collect();
    assert!(pool.try_take().is_none(), "all are out");
    for (n, buf) in out.iter_mut().enumerate() {
        buf.fill(n as u8);
    }
    for (n, buf) in out.iter().enumerate() {
        assert!(buf.iter().all(|byte| usize::from(*byte) == n), "{n}");
    }
    let gone = out.swap_remove(1).as_ptr();
    let again = pool.try_take().expect("it came back");
    assert_eq!(again.as_ptr(), gone);
    assert!(pool.try_take().is_none(), "all are out again");
}
