//! A C-style library made awaitable: a function pointer, a pointer to user
//! data, a number to cancel by.
//!
//! `read` is a point. Told, it asks the library to cancel; if that is too late
//! it waits, for the library still holds the pointer. So the callback comes
//! once, and what it points to is freed once, however this goes.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kinfolk::kit::{Abort, Completer, Completion, completion};
use kinfolk::{Error, Result, checkpoint, scope, timeout};
use library::Library;

/// Reads one page. A *point*: told, nothing is read, or the page is.
async fn read(library: &Library, page: u32) -> Result<String> {
    checkpoint().await?; // told already: it never begins
    let text = begin(library, page).await?;
    text.ok_or_else(|| Error::msg("the library has cancelled it"))
}

fn begin(library: &Library, page: u32) -> Completion<Option<String>> {
    let (wait, completer) = completion();
    let user = Box::into_raw(Box::new(completer));
    let id = library.read(page, on_read, user.cast());
    let library = library.clone();
    wait.abort_with(move || match library.cancel(id) {
        true => Abort::Done,
        false => Abort::NotNow, // being read: the callback comes soon
    })
}

/// Called by the library, once, on whatever thread; none if it was cancelled.
fn on_read(user: *mut c_void, text: Option<String>) {
    // SAFETY: `begin` has made it of this type, and it comes back once.
    let completer = unsafe { Box::from_raw(user.cast::<Completer<Option<String>>>()) };
    completer.complete(text);
}

#[kinfolk::main]
async fn main() -> Result<()> {
    let library = Library::default();
    let engine = library.clone();
    std::thread::spawn(move || engine.run());

    println!("one page:  {}", read(&library, 1).await?);
    let both = scope(async |s| {
        let (a, b) = (library.clone(), library.clone());
        let a = s.spawn(async move { read(&a, 2).await });
        let b = s.spawn(async move { read(&b, 3).await });
        Ok((a.await?, b.await?))
    });
    println!("two pages: {:?}", both.await?);
    let late = timeout(Duration::from_millis(5), read(&library, library::SLOW)).await;
    println!("too slow:  {}", late.unwrap_err());
    Ok(())
}

/// The library, in miniature.
mod library {
    use super::*;

    pub type OnRead = fn(user: *mut c_void, text: Option<String>);

    /// A page that never comes.
    pub const SLOW: u32 = 404;

    #[derive(Clone, Default)]
    pub struct Library(Arc<(Mutex<Inside>, Condvar)>);

    #[derive(Default)]
    struct Inside {
        next: u64,
        waiting: VecDeque<Request>,
        being_read: Option<Request>,
    }

    struct Request {
        id: u64,
        page: u32,
        on_read: OnRead,
        /// An address: the library does not look at it.
        user: usize,
    }

    impl Library {
        pub fn read(&self, page: u32, on_read: OnRead, user: *mut c_void) -> u64 {
            let mut inside = self.0.0.lock().unwrap();
            inside.next += 1;
            let id = inside.next;
            let user = user.expose_provenance();
            inside.waiting.push_back(Request {
                id,
                page,
                on_read,
                user,
            });
            self.0.1.notify_one();
            id
        }

        /// True if it had not begun: the callback has come, with nothing.
        pub fn cancel(&self, id: u64) -> bool {
            let mut inside = self.0.0.lock().unwrap();
            let at = inside.waiting.iter().position(|request| request.id == id);
            let found = at.and_then(|at| inside.waiting.remove(at));
            drop(inside);
            let cancelled = found.is_some();
            if let Some(request) = found {
                call(&request, None);
            }
            cancelled
        }

        /// Takes one up, if there is one.
        pub fn begin(&self) -> bool {
            let mut inside = self.0.0.lock().unwrap();
            let at = inside
                .waiting
                .iter()
                .position(|request| request.page != SLOW);
            inside.being_read = at.and_then(|at| inside.waiting.remove(at));
            inside.being_read.is_some()
        }

        /// It is read.
        pub fn finish(&self) {
            let read = self.0.0.lock().unwrap().being_read.take();
            if let Some(request) = read {
                call(&request, Some(format!("page {}", request.page)));
            }
        }

        /// The thread of the library.
        pub fn run(&self) {
            loop {
                while self.begin() {
                    self.finish();
                }
                let inside = self.0.0.lock().unwrap();
                let empty = |inside: &mut Inside| inside.waiting.iter().all(|r| r.page == SLOW);
                drop(self.0.1.wait_while(inside, empty).unwrap());
            }
        }

        /// True if it holds no pointer of anybody's.
        #[cfg(test)]
        pub fn is_empty(&self) -> bool {
            let inside = self.0.0.lock().unwrap();
            inside.waiting.is_empty() && inside.being_read.is_none()
        }
    }

    fn call(request: &Request, text: Option<String>) {
        (request.on_read)(std::ptr::with_exposed_provenance_mut(request.user), text);
    }
}

/// Stopped at each of its points in turn, the library never keeps a pointer to
/// something that is gone. A task plays the library's thread.
#[test]
fn a_read_can_be_stopped_anywhere() {
    use kinfolk::{Scope, sleep};
    const MS: Duration = Duration::from_millis(1);

    async fn pages(library: Library) -> Result<()> {
        let engine = library.clone();
        let run = Scope::build().run(async move |s| {
            // A service: it goes on until everybody who reads is done.
            let thread = s.spawn_service(async move {
                loop {
                    engine.begin();
                    sleep(MS).await?;
                    engine.finish();
                    sleep(MS).await?;
                }
                #[allow(unreachable_code)]
                Ok::<_, Error>(())
            });
            drop(thread.into_job());
            assert_eq!(read(&library, 1).await?, "page 1");
            assert_eq!(read(&library, 2).await?, "page 2");
            let late = timeout(MS, read(&library, library::SLOW)).await;
            late.unwrap_err();
            checkpoint().await?;
            Ok(())
        });
        run.await
    }

    let library = Library::default();
    let seen = library.clone();
    let went = kinfolk::testkit::cancel_everywhere_then(
        move || pages(library.clone()),
        move || assert!(seen.is_empty(), "the library holds a pointer"),
    );
    assert_eq!(went.forced, 0, "every wait hears it");
}
