//! Random reads of 4 KiB from a file in the page cache, one at a time and 64 at
//! once: what a trip through the driver costs on top of the system's.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native};
use crate::measure::per;
use crate::ways::{self, Way};

const PAGE: usize = 4096;
const PAGES: u64 = 16 * 1024;
const READS: u64 = 8_192;

const ONE: Bench = Bench {
    name: "file read, depth 1",
    what: "4 KiB are read at a random place of a cached file; then the next. One thread.",
    per: "read",
    unit: Unit::Nanoseconds,
    targets: &[],
};

const MANY: Bench = Bench {
    name: "file read, depth 64",
    what: "The same by 64 tasks at once. One thread.",
    per: "read",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::Of("floor", 1.1))],
};

/// The file, made once and removed from its directory at once.
fn file() -> &'static (File, PathBuf) {
    static FILE: OnceLock<(File, PathBuf)> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("kinfolk-bench-{}", std::process::id()));
        let mut file = File::create(&path).expect("a scratch file");
        let page = [7_u8; PAGE];
        for _ in 0..PAGES {
            file.write_all(&page).expect("room for a scratch file");
        }
        let file = File::open(&path).expect("the scratch file");
        std::fs::remove_file(&path).expect("the scratch file");
        // Under this name it can still be opened.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (file, path.into())
    })
}

/// Places to read at, the same for all.
struct Places(u64);

impl Places {
    fn new(task: u64) -> Places {
        Places(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(task + 1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % PAGES) * PAGE as u64
    }
}

pub fn groups() -> Vec<Group> {
    vec![group(ONE, 1), group(MANY, 64)]
}

/// Each task uses one buffer again and again.
async fn kinfolk<B: kinfolk_runtime::io::IoBufMut>(
    depth: u64,
    make: impl Fn() -> B,
) -> kinfolk_core::Result<Vec<f64>> {
    let file = Arc::new(kinfolk_runtime::fs::File::open(&file().1).await?);
    let start = Instant::now();
    kinfolk_core::scope(async |scope| {
        for task in 0..depth {
            let (file, mut buf) = (file.clone(), make());
            scope.launch(async move {
                let mut places = Places::new(task);
                for _ in 0..READS / depth {
                    let (read, back) = file.read_at(buf, places.next()).await;
                    assert_eq!(read?, PAGE);
                    buf = back;
                }
                Ok::<_, kinfolk_core::Error>(())
            });
        }
        Ok(())
    })
    .await?;
    Ok(vec![per(start.elapsed(), READS)])
}

async fn tokio_fs(depth: u64) -> Vec<f64> {
    // Its threads are there after that.
    tokio_reads(depth).await;
    let start = Instant::now();
    tokio_reads(depth).await;
    vec![per(start.elapsed(), READS)]
}

async fn tokio_reads(depth: u64) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..depth {
        tasks.spawn(async move {
            let mut places = Places::new(task);
            let mut buf = vec![0; PAGE];
            for _ in 0..READS / depth {
                let at = places.next();
                // The cheapest that tokio offers for a place in a file.
                buf = tokio::task::spawn_blocking(move || {
                    file().0.read_exact_at(&mut buf, at).expect("a page");
                    buf
                })
                .await
                .expect("a page");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

async fn glommio(depth: u64) -> Vec<f64> {
    let file = Rc::new(
        glommio::io::BufferedFile::open(&file().1)
            .await
            .expect("the file"),
    );
    let start = Instant::now();
    let tasks: Vec<_> = (0..depth)
        .map(|task| {
            let file = file.clone();
            glommio::spawn_local(async move {
                let mut places = Places::new(task);
                for _ in 0..READS / depth {
                    let read = file.read_at(places.next(), PAGE).await.expect("a page");
                    assert_eq!(read.len(), PAGE);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    vec![per(start.elapsed(), READS)]
}

async fn monoio_fs(depth: u64) -> Vec<f64> {
    let file = Rc::new(
        monoio::fs::File::open(&file().1)
            .await
            .expect("the scratch file"),
    );
    let start = Instant::now();
    let tasks: Vec<_> = (0..depth)
        .map(|task| {
            let file = file.clone();
            monoio::spawn(async move {
                let (mut places, mut buf) = (Places::new(task), vec![0; PAGE]);
                for _ in 0..READS / depth {
                    let (read, back) = file.read_at(buf, places.next()).await;
                    assert_eq!(read.expect("a page"), PAGE);
                    buf = back;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    vec![per(start.elapsed(), READS)]
}

async fn compio_fs(depth: u64) -> Vec<f64> {
    use compio::BufResult;
    use compio::io::AsyncReadAt;
    let file = compio::fs::File::open(&file().1).await.expect("the file");
    let start = Instant::now();
    let tasks: Vec<_> = (0..depth)
        .map(|task| {
            let file = file.clone();
            compio::runtime::spawn(async move {
                let (mut places, mut buf) = (Places::new(task), Vec::with_capacity(PAGE));
                for _ in 0..READS / depth {
                    let BufResult(read, back) = file.read_at(buf, places.next()).await;
                    assert_eq!(read.expect("a page"), PAGE);
                    buf = back;
                    buf.clear();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends");
    }
    vec![per(start.elapsed(), READS)]
}

/// A ring by hand: as many buffers as reads at once, each used again.
fn ring(depth: u64) -> Vec<f64> {
    let mut ring: io_uring::IoUring = io_uring::IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_no_sqarray()
        .build(256)
        .expect("a ring");
    let fd = io_uring::types::Fd(file().0.as_raw_fd());
    let mut bufs: Vec<_> = (0..depth).map(|_| vec![0_u8; PAGE]).collect();
    let mut places: Vec<_> = (0..depth).map(Places::new).collect();
    let start = Instant::now();
    let (mut begun, mut done) = (0, 0);
    let mut idle: Vec<usize> = (0..depth as usize).collect();
    while done < READS {
        while begun < READS
            && let Some(n) = idle.pop()
        {
            let read = io_uring::opcode::Read::new(fd, bufs[n].as_mut_ptr(), PAGE as u32)
                .offset(places[n].next())
                .build()
                .user_data(n as u64);
            // SAFETY: the buffer lives longer than the ring, and is used again
            // only after its read is over.
            unsafe { ring.submission().push(&read).expect("there is room") };
            begun += 1;
        }
        ring.submit_and_wait(1).expect("the ring turns");
        for entry in ring.completion() {
            assert_eq!(entry.result(), PAGE as i32);
            idle.push(entry.user_data() as usize);
            done += 1;
        }
    }
    vec![per(start.elapsed(), READS)]
}

fn group(bench: Bench, depth: u64) -> Group {
    let contestants = vec![
        Contestant::ours(Way::NativeOne.name(), move || {
            Way::NativeOne.run(kinfolk(depth, || vec![0; PAGE]))
        }),
        Contestant::variant("kinfolk, registered", move || {
            let pool = kinfolk_runtime::io::registered(depth as u32, PAGE);
            let make = move || pool.try_take().expect("one for each task");
            Way::NativeOne.run(kinfolk(depth, make))
        }),
        Contestant::peer("tokio spawn_blocking", move || {
            ways::tokio_one(tokio_fs(depth))
        }),
        Contestant::peer("glommio", move || ways::glommio(glommio(depth))),
        Contestant::peer("monoio", move || ways::monoio(monoio_fs(depth))),
        Contestant::peer("compio", move || ways::compio(compio_fs(depth))),
        Contestant::floor(move || ring(depth)),
    ];
    Group {
        benches: vec![bench],
        contestants,
        most_rounds: usize::MAX,
    }
}
