//! axum: a server in a job, and handlers that are jobs, cancelled after each of their polls.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use futures_util::future::{Either, join, select};
use kinfolk::{OrCancel, Result, Scope, cleanup, current_job, scope, shield, spawn, yield_now};
use kinfolk_client_tests::{AtPoll, Awaited, On, Place, after_each_poll, at};
use kinfolk_tokio::TokenExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What is done to a handler after one of its polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// Its job is cancelled.
    Cancelled,
    /// Its client hangs up, and the handler goes no further by itself.
    HungUp,
}

/// What the server does to its handlers, and what it has counted.
struct Desk {
    after: After,
    /// After which poll of the next handler.
    at: AtomicUsize,
    /// How often that was polled.
    polls: Arc<AtomicUsize>,
    hang_up: Arc<Notify>,
    begun: AtomicUsize,
    gone: AtomicUsize,
    told: AtomicUsize,
    cleaned: AtomicUsize,
}

impl Desk {
    fn new(after: After) -> Arc<Desk> {
        Arc::new(Desk {
            after,
            at: AtomicUsize::new(usize::MAX),
            polls: Arc::default(),
            hang_up: Arc::default(),
            begun: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            cleaned: AtomicUsize::new(0),
        })
    }

    /// All that was begun has gone, and what was told has cleaned up.
    fn rests(&self) -> bool {
        self.begun.load(SeqCst) == self.gone.load(SeqCst)
            && self.told.load(SeqCst) == self.cleaned.load(SeqCst)
    }
}

/// Counts a body that has begun, and that it has gone.
struct Begun(Arc<Desk>);

impl Begun {
    fn new(desk: &Arc<Desk>) -> Begun {
        desk.begun.fetch_add(1, SeqCst);
        Begun(desk.clone())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, SeqCst);
    }
}

/// Some work with several points. Told, it cleans up.
async fn works(desk: Arc<Desk>) -> Result<()> {
    let _begun = Begun::new(&desk);
    for _ in 0..4 {
        if let Err(told) = yield_now().await {
            desk.told.fetch_add(1, SeqCst);
            let cleans = async {
                yield_now().await?;
                desk.cleaned.fetch_add(1, SeqCst);
                Ok::<_, kinfolk::Error>(())
            };
            cleanup(cleans).await?;
            return Err(told.into());
        }
    }
    Ok(())
}

/// A handler: it works, and a child of it does.
async fn handler(desk: Arc<Desk>) -> Result<()> {
    let child = spawn(works(desk.clone()));
    // The polls of this body are counted, and not those of the child.
    let job = current_job().expect("it is one");
    let (after, hang_up) = (desk.after, desk.hang_up.clone());
    let call = move || match after {
        After::Cancelled => {
            job.cancel("after this poll");
        }
        After::HungUp => hang_up.notify_one(),
    };
    let halts = desk.clone();
    let works = async move {
        let mut works = Box::pin(works(halts.clone()));
        std::future::poll_fn(move |cx| {
            let is_over = halts.polls.load(SeqCst) >= halts.at.load(SeqCst);
            match is_over && halts.after == After::HungUp {
                true => std::task::Poll::Pending,
                false => works.as_mut().poll(cx),
            }
        })
        .await
    };
    let at = desk.at.load(SeqCst);
    AtPoll::new(at, desk.polls.clone(), call, works).await?;
    child.await
}

/// Serves until its scope is told; then it takes no more, and what is under way is answered.
async fn serve(listener: TcpListener, desk: Arc<Desk>) -> Result<()> {
    scope(async move |s: Scope| {
        let told = s.token();
        // Requests are protected as the server is.
        let requests = Scope::named("requests").supervisor();
        let serve = requests.run(async move |requests: Scope| {
            let answer = move || {
                let (requests, desk) = (requests.clone(), desk.clone());
                async move {
                    match requests.task("request").host(handler(desk)).await {
                        Ok(()) => (StatusCode::OK, "whole".to_string()),
                        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
                    }
                }
            };
            let router = Router::new().route("/", get(answer));
            let serve = axum::serve(listener, router);
            serve.with_graceful_shutdown(told.cancelled_owned()).await?;
            Ok(())
        });
        shield(serve).await
    })
    .await
}

/// One request, and all that comes back.
async fn ask(to: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    let request = b"GET / HTTP/1.1\r\nhost: kinfolk\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn is_whole(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nwhole")
}

fn is_refused(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 503") && answer.contains("after this poll")
}

/// The handlers of one server, each stopped after another poll.
fn handlers(place: &Place, after: After) {
    let desk = Desk::new(after);
    let listener = place.tokio(TcpListener::bind("127.0.0.1:0")).unwrap();
    let to = listener.local_addr().unwrap();
    let server = place.launch(serve(listener, desk.clone()));
    assert!(is_whole(&place.tokio(ask(to)).unwrap()));
    let polls = desk.polls.swap(0, SeqCst);
    assert!(polls > 2, "{polls} polls");
    for at in 1..polls {
        desk.at.store(at, SeqCst);
        let asked = async {
            let hung_up = desk.hang_up.notified();
            let (ask, hung_up) = (std::pin::pin!(ask(to)), std::pin::pin!(hung_up));
            match select(ask, hung_up).await {
                Either::Left((answer, _)) => Some(answer.unwrap()),
                Either::Right(_) => None,
            }
        };
        let answer = place.tokio(asked);
        match after {
            After::Cancelled => assert!(is_refused(&answer.unwrap()), "at {at}"),
            After::HungUp => assert!(answer.is_none(), "at {at}"),
        }
        // The client has heard, or is gone; the jobs of its request go too.
        place.until(|| desk.rests());
        desk.at.store(usize::MAX, SeqCst);
        assert!(is_whole(&place.tokio(ask(to)).unwrap()), "after {at}");
        desk.polls.store(0, SeqCst);
    }
    server.cancel("enough");
    place.rests();
    assert!(desk.rests());
    assert!(place.tokio(ask(to)).is_err(), "it does not listen any more");
}

/// The server and three clients of it in one job, cancelled after each of its polls.
fn servers(place: &Place, awaited: Awaited) {
    let desk = Desk::new(After::Cancelled);
    let make = || {
        let desk = desk.clone();
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let to = listener.local_addr()?;
            scope(async move |s: Scope| {
                let asks = async {
                    let mut whole = 0;
                    for _ in 0..3 {
                        whole += usize::from(is_whole(&ask(to).or_cancel().await??));
                    }
                    s.cancel("enough");
                    Ok::<_, kinfolk::Error>(whole)
                };
                let (served, whole) = join(serve(listener, desk), asks).await;
                served?;
                whole
            })
            .await
        }
    };
    let cancelled = after_each_poll(place, awaited, make, |ran| {
        assert!(ran.value.is_none_or(|whole| whole == 3), "{ran:?}");
        place.until(|| desk.rests());
    });
    assert!(cancelled > 1);
}

const EVERYWHERE: [On; 3] = [On::OneThread, On::Workers, On::Native];

/// handle-15: a handler of axum's is cancelled after each of its polls: its client gets a
/// whole answer that says so, and what it has started cleans up.
#[test]
fn handle_15_an_axum_handler_is_cancelled_after_each_poll() {
    for on in EVERYWHERE {
        at(on, |place| handlers(place, After::Cancelled));
    }
}

/// handle-15: so it is when the client hangs up: axum drops the handler, and its child is told.
#[test]
fn handle_15_an_axum_handler_whose_client_hangs_up_after_each_poll() {
    for on in EVERYWHERE {
        at(on, |place| handlers(place, After::HungUp));
    }
}

/// shield-2: a server that is cancelled after each poll takes no more, and ends when it has
/// answered what was under way.
#[test]
fn shield_2_an_axum_server_is_cancelled_after_each_poll() {
    for on in EVERYWHERE {
        at(on, |place| servers(place, Awaited::Bare));
    }
}

/// cancel-5: a server that is dropped after each poll leaves nothing.
#[test]
fn cancel_5_an_axum_server_under_or_cancel_after_each_poll() {
    for on in EVERYWHERE {
        at(on, |place| servers(place, Awaited::OrCancel));
    }
}

/// shield-3: a server in a clean-up serves on.
#[test]
fn shield_3_an_axum_server_in_a_clean_up_serves_on() {
    for on in EVERYWHERE {
        at(on, |place| servers(place, Awaited::Cleanup));
    }
}
