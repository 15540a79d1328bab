//! Names of hosts: looked up once for all that ask at the same time, and remembered for a
//! while.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinfolk_core::placed::{blocking_at, completion_at};
use kinfolk_core::{checkpoint, now};

use super::addr::ToSocketAddrs;
use super::socket::entered;
use crate::blocking::{For, on_threads};
use crate::io::IoHandle;
use crate::io::host_names::{AskedHost, HostEntry, LookedUp};

/// How long an answer is remembered. The system does not say how long it is good for.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// How many answers are remembered.
const MOST: usize = 1024;

/// Looks up the addresses of a host: `lookup_host("localhost:80")`, or `("localhost", 80)`.
///
/// A name is looked up on a thread that blocking calls of the program do not take. Jobs that
/// ask for the same name at the same time share one look-up, and its answer is remembered for
/// ten seconds; failures are not. `connect` and `bind` look names up in the same way.
///
/// # Cancellation
/// A *point*. Told, a look-up that a thread has begun goes on without this job, and its answer
/// is remembered. One that still waits for a thread is given up, unless other jobs wait for it.
///
/// # Errors
/// If the name is not known, or no name at all.
#[track_caller]
pub fn lookup_host<A: ToSocketAddrs>(
    addr: A,
) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + use<A> {
    let (addrs, point, site) = (addr.to_addrs(), checkpoint(), Location::caller());
    async move {
        entered(point).await?;
        addrs.resolve(site).await
    }
}

/// A look-up that was promised to others. Dropped before it was made, it says so.
struct LookUp {
    handle: Arc<IoHandle>,
    host: String,
    until: Instant,
    made: bool,
}

impl LookUp {
    /// On a thread that may block. None if no job wants it any more: those that wait for a
    /// thread do not wait for the answers of a system that no job reads.
    fn make(mut self) -> Option<LookedUp> {
        self.made = true;
        if !self.handle.names().begin(&self.host) {
            return None;
        }
        let found = ask_system(&self.host);
        (self.handle.names()).settle(&self.host, Some(found.clone()), self.until);
        Some(found)
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        if !self.made {
            self.handle.names().settle(&self.host, None, self.until);
        }
    }
}

fn ask_system(host: &str) -> LookedUp {
    match (host, 0).to_socket_addrs() {
        Ok(addrs) => Ok(addrs.map(|addr| addr.ip()).collect()),
        Err(error) => Err((error.kind(), error.to_string())),
    }
}

/// The addresses of `host`, with this port. Snapshots and reports name `site`.
pub(super) async fn look_up(
    site: &'static Location<'static>,
    host: String,
    port: u16,
) -> io::Result<Vec<SocketAddr>> {
    let found = match IoHandle::current() {
        Ok(handle) => remembered(site, handle, host).await?,
        // A host without i/o of ours remembers nothing.
        Err(_) => {
            let call = blocking_at(site, move |_| ask_system(&host)).abandon();
            on_threads(For::Names, call)
                .await
                .map_err(io::Error::other)?
        }
    };
    match found {
        Ok(ips) => Ok(ips
            .into_iter()
            .map(|ip| SocketAddr::new(ip, port))
            .collect()),
        Err((kind, words)) => Err(io::Error::new(kind, words)),
    }
}

/// What is known of `host`, or what a look-up brings, this job's or another's.
async fn remembered(
    site: &'static Location<'static>,
    handle: Arc<IoHandle>,
    host: String,
) -> io::Result<LookedUp> {
    // This job wants the answer as long as this is there.
    let wants = Arc::new(());
    loop {
        let moment = now();
        let waits = {
            let mut entries = handle.names().entries();
            entries.retain(
                |_, entry| !matches!(entry, HostEntry::Known(_, until) if *until <= moment),
            );
            match entries.get_mut(&host) {
                Some(HostEntry::Known(addrs, _)) => return Ok(Ok(addrs.clone())),
                Some(HostEntry::Asked(asked)) => {
                    let (wait, completer) = completion_at(site);
                    asked.also(Arc::downgrade(&wants), completer);
                    Some(wait)
                }
                None => {
                    // Beyond the limit it is looked up and not remembered for long.
                    if entries.len() >= MOST {
                        entries.retain(|_, entry| matches!(entry, HostEntry::Asked(_)));
                    }
                    let asked = AskedHost::by(Arc::downgrade(&wants));
                    entries.insert(host.clone(), HostEntry::Asked(asked));
                    None
                }
            }
        };
        let found = match waits {
            Some(wait) => wait.await.map_err(io::Error::other)?,
            None => {
                let look_up = LookUp {
                    handle: handle.clone(),
                    host: host.clone(),
                    until: moment + GOOD_FOR,
                    made: false,
                };
                let call = blocking_at(site, move |_| look_up.make()).abandon();
                on_threads(For::Names, call)
                    .await
                    .map_err(io::Error::other)?
            }
        };
        // Nothing, if the job that was to look it up was told before: this one does.
        if let Some(found) = found {
            return Ok(found);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::Runtime;
    use kinfolk_core::{Error, Result, spawn, yield_now};

    const HERE: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1))];

    fn run(body: impl AsyncFn(Arc<IoHandle>) -> Result<()>) {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        rt.block_on(async { body(IoHandle::current()?).await })
            .expect("it is well");
    }

    fn put(handle: &IoHandle, host: &str, entry: HostEntry) {
        handle.names().entries().insert(host.into(), entry);
    }

    fn waiting(handle: &IoHandle, host: &str) -> usize {
        match handle.names().entries().get(host) {
            Some(HostEntry::Asked(asked)) => asked.waiting(),
            _ => 0,
        }
    }

    /// A name that no system knows is answered from memory, until the answer is old.
    #[test]
    fn io_5_an_answer_is_remembered_for_a_while() {
        run(async |handle| {
            let known = |until| HostEntry::Known(HERE.to_vec(), until);
            put(&handle, "a.invalid", known(now() + GOOD_FOR));
            let found = lookup_host("a.invalid:80").await?;
            assert_eq!(found, [SocketAddr::new(HERE[0], 80)]);
            put(&handle, "a.invalid", known(now()));
            lookup_host(("a.invalid", 80))
                .await
                .expect_err("it is looked up anew");
            assert!(handle.names().entries().is_empty(), "failures are not kept");
            Ok(())
        });
    }

    #[test]
    fn io_5_a_name_is_looked_up_and_remembered() {
        run(async |handle| {
            let found = lookup_host("localhost:80").await?;
            assert!(
                found
                    .iter()
                    .all(|addr| addr.ip().is_loopback() && addr.port() == 80)
            );
            assert!(!found.is_empty());
            let entries = handle.names().entries();
            assert!(matches!(
                entries.get("localhost"),
                Some(HostEntry::Known(..))
            ));
            Ok(())
        });
    }

    /// Jobs that ask while a look-up is under way get its answer, and one that is told leaves
    /// it to the others.
    #[test]
    fn io_5_jobs_share_a_look_up() {
        run(async |handle| {
            put(&handle, "b.invalid", HostEntry::Asked(AskedHost::default()));
            let ask = || spawn(async { lookup_host("b.invalid:1").await.map_err(Error::from) });
            let (one, two) = (ask(), ask());
            while waiting(&handle, "b.invalid") < 2 {
                yield_now().await?;
            }
            one.cancel("enough");
            assert!(one.outcome().await?.is_cancelled());
            (handle.names()).settle("b.invalid", Some(Ok(HERE.to_vec())), now() + GOOD_FOR);
            assert_eq!(two.await?, [SocketAddr::new(HERE[0], 1)]);
            Ok(())
        });
    }

    /// The job that was to look the name up is gone before its call began: another does it.
    #[test]
    fn io_5_a_look_up_that_is_never_made_is_made_by_another() {
        run(async |handle| {
            put(&handle, "localhost", HostEntry::Asked(AskedHost::default()));
            let never = LookUp {
                handle: handle.clone(),
                host: "localhost".into(),
                until: now(),
                made: false,
            };
            let task = spawn(async { lookup_host("localhost:1").await.map_err(Error::from) });
            while waiting(&handle, "localhost") < 1 {
                yield_now().await?;
            }
            drop(never);
            assert!(task.await?[0].ip().is_loopback());
            Ok(())
        });
    }

    /// A look-up that no job wants any more when its thread begins is not made, and not
    /// remembered; one that a job still waits for is.
    #[test]
    fn io_5_a_look_up_that_no_job_wants_is_not_made() {
        run(async |handle| {
            let begins = |wanted: bool| {
                let (_wait, completer) = completion_at(Location::caller());
                let (gone, wants) = (Arc::new(()), Arc::new(()));
                let mut asked = AskedHost::by(Arc::downgrade(&gone));
                asked.also(Arc::downgrade(&wants), completer);
                put(&handle, "127.0.0.1", HostEntry::Asked(asked));
                drop(gone);
                let _wants = wanted.then_some(wants);
                let look_up = LookUp {
                    handle: handle.clone(),
                    host: "127.0.0.1".into(),
                    until: now() + GOOD_FOR,
                    made: false,
                };
                look_up.make().is_some()
            };
            assert!(!begins(false));
            assert!(handle.names().entries().is_empty(), "it is forgotten");
            assert!(begins(true));
            assert_eq!(handle.names().entries().len(), 1);
            Ok(())
        });
    }

    /// Jobs that leave while a look-up lasts leave nothing that grows.
    #[test]
    fn io_5_jobs_that_leave_a_look_up_leave_nothing() {
        run(async |handle| {
            let asked = HostEntry::Asked(AskedHost::by(Arc::downgrade(&Arc::new(()))));
            put(&handle, "c.invalid", asked);
            for _ in 0..1000 {
                let mut ask = Box::pin(lookup_host("c.invalid:1"));
                std::future::poll_fn(|cx| {
                    let _ = ask.as_mut().poll(cx);
                    std::task::Poll::Ready(())
                })
                .await;
            }
            assert!(waiting(&handle, "c.invalid") <= 16);
            Ok(())
        });
    }

    #[test]
    fn io_5_what_is_no_name_is_an_error() {
        run(async |_| {
            for bad in ["no port", "host:x"] {
                let error = lookup_host(bad).await.expect_err("no address");
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            }
            Ok(())
        });
    }
}
