//! Drivers that are broken on purpose: what watches them must say so.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{Error, checkpoint, spawn, timeout};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::driver::{Answer, Driver, Notifier, OpId, WaitMode};
use kinfolk_runtime::io::{Request, pipe};
use kinfolk_testkit::guarded;
use kinfolk_testkit::io::{Audit, OpenFiles, Quarantine};

/// What is wrong with a driver.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// A cancelled operation is said to be over at once; the system goes on.
    OverTooSoon,
    /// It says of more bytes that they were written than were.
    SaysMore,
}

struct Broken {
    driver: Box<dyn Driver>,
    wrong: Wrong,
    /// Said to be over, and not over.
    too_soon: Vec<OpId>,
    answers: Vec<Answer>,
}

// SAFETY: each submission is collected once, unless a test wants to see what
// happens otherwise; no memory is touched.
unsafe impl Driver for Broken {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        // SAFETY: as promised to us. We may break our own promise: the memory is
        // in quarantine.
        unsafe { self.driver.submit(id, request) };
    }

    fn cancel(&mut self, id: OpId) {
        if self.wrong != Wrong::OverTooSoon {
            return self.driver.cancel(id);
        }
        self.too_soon.push(id);
        let result = -libc::ECANCELED;
        self.answers.push(Answer::last(id, result));
    }

    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
        answers.append(&mut self.answers);
        let wait = if answers.is_empty() {
            wait
        } else {
            WaitMode::No
        };
        let before = answers.len();
        self.driver.poll(wait, answers)?;
        let mut at = before;
        while at < answers.len() {
            if self.too_soon.contains(&answers[at].id) {
                answers.remove(at);
                continue;
            }
            if self.wrong == Wrong::SaysMore && answers[at].result > 0 {
                answers[at].result += 1;
            }
            at += 1;
        }
        Ok(())
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        self.driver.notifier()
    }

    fn wants_nonblocking(&self) -> bool {
        self.driver.wants_nonblocking()
    }

    fn name(&self) -> &'static str {
        "broken"
    }
}

/// A read that is cancelled, and bytes that come afterwards.
fn scenario(wrong: Wrong) -> Result<(), String> {
    let (quarantine, audit) = (Quarantine::new(), Audit::new());
    let run = || {
        let seen = audit.clone();
        let rt = Runtime::builder()
            .workers(0)
            .wrap_io(move |driver| {
                seen.watch(Box::new(Broken {
                    driver,
                    wrong,
                    too_soon: Vec::new(),
                    answers: Vec::new(),
                }))
            })
            .build()
            .expect("a runtime");
        let buffers = quarantine.clone();
        let main = rt.scope().task("main").spawn(async move {
            let (reader, writer) = pipe()?;
            let (reader, buf) = (Arc::new(reader), buffers.buf(16));
            let from = reader.clone();
            let reads = spawn(async move {
                drop(from.read(buf).await);
                checkpoint().await?;
                Ok::<_, Error>(())
            });
            for _ in 0..10 {
                kinfolk_core::yield_now().await?;
            }
            reads.cancel("enough");
            assert!(reads.outcome().await?.is_cancelled());
            let (written, _) = writer.write(buffers.filled("abc")).await;
            assert_eq!(written?, 3, "as many as there are");
            let (read, buf) = timeout(Duration::from_millis(200), async {
                Ok::<_, Error>(reader.read(buffers.buf(16)).await)
            })
            .await?;
            assert_eq!((read?, &*buf), (3, &b"abc"[..]), "the next gets them");
            Ok::<_, Error>(())
        });
        let ended = rt.wait_for(main).expect("outside any job");
        drop(rt);
        // The bytes first: what is wrong with them may be wrong with memory.
        quarantine.check();
        audit.check();
        ended.expect("all is well");
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        words.unwrap_or_else(|| (*panic.downcast_ref::<&str>().expect("words")).to_string())
    })
}

#[test]
fn io_3_a_driver_that_is_broken_is_found_out() {
    guarded("broken drivers", |_| {
        assert_eq!(scenario(Wrong::Nothing), Ok(()));
        let words = scenario(Wrong::OverTooSoon).expect_err("it lets go too soon");
        assert!(words.contains("3 of 16 bytes of a buffer were written after its end"));
        let words = scenario(Wrong::SaysMore).expect_err("it says more");
        assert!(words.contains("as many as there are"), "{words}");
    });
}

/// Alone or not: this file stays open meanwhile.
#[test]
#[should_panic(expected = "/dev/null")]
fn a_file_that_is_left_open_is_named() {
    let before = OpenFiles::now();
    let mut open = Vec::new();
    for _ in 0..before.len() + 500 {
        open.push(std::fs::File::open("/dev/null").expect("a file"));
    }
    before.assert_no_more();
}
