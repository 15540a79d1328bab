//! The layer alone: a service that is called and dropped as a server does, without a socket.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use common::{Answered, AnyBody, Dropped, Lab, SECOND, Script, Step, boxed, flag, get, grpc};
use common::{on_each, set, text};
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use kinfolk_core::{Patience, Scope, cleanup, deadline, now, park, spawn};
use kinfolk_tower::{CLIENT_GONE, LayerAnswer, RequestBody, RequestLayer, TimeoutFormat};
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt, service_fn};

type Client = Request<Empty<Bytes>>;

/// A service of a handler, behind the layer.
fn service<H, F>(
    layer: RequestLayer,
    handler: H,
) -> impl Service<
    Client,
    Response = Response<RequestBody<Bytes>>,
    Error = std::convert::Infallible,
    Future: Send + Unpin,
> + Clone
where
    H: FnMut(Client) -> F + Clone + Send + 'static,
    F: Future<Output = Answered> + Send + 'static,
{
    layer.layer(service_fn(handler))
}

fn layer(lab: &Lab) -> RequestLayer {
    RequestLayer::new(lab.scope())
}

async fn words(response: Response<RequestBody<Bytes>>) -> String {
    let bytes = response.into_body().collect().await.expect("a whole body");
    String::from_utf8_lossy(&bytes.to_bytes()).into()
}

fn answer<B>(response: &Response<B>) -> Option<LayerAnswer> {
    response.extensions().get().copied()
}

/// A deadline that has time to pass where the clock is the system's.
fn soon(lab: &Lab) -> Duration {
    match lab.is_paused {
        true => SECOND,
        false => SECOND / 50,
    }
}

#[test]
fn a_request_is_a_job_below_the_scope() {
    on_each(async |lab| {
        let (begun, go) = (flag(), Arc::new(Notify::new()));
        let (begins, goes) = (begun.clone(), go.clone());
        let service = service(layer(&lab).named("shop"), move |_| {
            let (begins, goes) = (begins.clone(), goes.clone());
            async move {
                // It may spawn, and what it spawns is waited for.
                let part = spawn(async move { 42 });
                begins.store(true, SeqCst);
                goes.notified().await;
                Ok(text(part.await.unwrap().to_string()))
            }
        });
        let response = tokio::spawn(service.oneshot(get("/secret/path")));
        set(&begun).await;
        assert_eq!(lab.tasks()[0], "GET shop");
        go.notify_one();
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.body().size_hint().exact(), Some(2));
        assert_eq!(words(response).await, "42");
        lab.is_empty().await;
    });
}

#[test]
fn a_client_that_is_gone_is_told_and_the_clean_up_is_waited_for() {
    on_each(async |lab| {
        let (begun, told, go, tidy) = (flag(), flag(), Arc::new(Notify::new()), flag());
        let all = (begun.clone(), told.clone(), go.clone(), tidy.clone());
        let knows_why = flag();
        let knows = knows_why.clone();
        let service = service(layer(&lab), move |_| {
            let (begun, told, go, tidy) = all.clone();
            let knows = knows.clone();
            async move {
                begun.store(true, SeqCst);
                let why = park().await.expect_err("it is told");
                let words = why.reason().text() == Some(CLIENT_GONE);
                knows.store(words, SeqCst);
                told.store(true, SeqCst);
                cleanup(async { go.notified().await }).await.unwrap();
                tidy.store(true, SeqCst);
                Ok(text("nobody reads this"))
            }
        });
        let mut response = service.oneshot(get("/"));
        tokio::select! {
            biased;
            _ = &mut response => panic!("it waits"),
            () = set(&begun) => {}
        }
        drop(response);
        set(&told).await;
        assert!(knows_why.load(SeqCst), "why it was told");
        // The client is gone, and the job is there.
        assert_eq!(lab.tasks(), ["GET request"]);
        assert!(!tidy.load(SeqCst));
        go.notify_one();
        lab.is_empty().await;
        assert!(tidy.load(SeqCst));
    });
}

#[test]
fn a_handler_without_a_point_is_dropped_when_its_client_goes() {
    on_each(async |lab| {
        let (begun, gone) = (flag(), flag());
        let (begins, goes) = (begun.clone(), gone.clone());
        let service = service(layer(&lab), move |_| {
            let (begins, goes) = (begins.clone(), goes.clone());
            async move {
                let _dropped = Dropped(goes);
                begins.store(true, SeqCst);
                std::future::pending::<Answered>().await
            }
        });
        let began = tokio::time::Instant::now();
        let response = tokio::spawn(service.oneshot(get("/")));
        set(&begun).await;
        response.abort();
        set(&gone).await;
        lab.is_empty().await;
        // At once, and it is no forced drop: `on_each` looks at those.
        assert!(began.elapsed() < SECOND);
    });
}

#[test]
fn a_response_that_is_dropped_before_its_job_begins_never_begins() {
    on_each(async |lab| {
        let begun = flag();
        let begins = begun.clone();
        let mut service = service(layer(&lab), move |_| {
            begins.store(true, SeqCst);
            async { Ok(text("")) }
        });
        if lab.is_paused {
            // One thread: no turn of the job can come in between.
            drop(service.call(get("/")));
            lab.is_empty().await;
            assert!(!begun.load(SeqCst));
        }
    });
}

#[test]
fn a_detached_request_goes_on_without_its_client() {
    on_each(async |lab| {
        let (begun, go, paid) = (flag(), Arc::new(Notify::new()), flag());
        let all = (begun.clone(), go.clone(), paid.clone());
        let service = service(layer(&lab).detached(), move |_| {
            let (begun, go, paid) = all.clone();
            async move {
                begun.store(true, SeqCst);
                go.notified().await;
                kinfolk_core::checkpoint().await.expect("it is not told");
                paid.store(true, SeqCst);
                Ok(text("paid"))
            }
        });
        let response = tokio::spawn(service.oneshot(get("/pay")));
        set(&begun).await;
        response.abort();
        assert!(response.await.unwrap_err().is_cancelled());
        assert_eq!(lab.tasks(), ["GET request"]);
        go.notify_one();
        lab.is_empty().await;
        assert!(paid.load(SeqCst));
    });
}

/// A shutdown reaches it all the same, and waits for its clean-up.
#[test]
fn a_detached_request_hears_the_cancel_of_its_scope() {
    on_each(async |lab| {
        let (begun, tidy) = (flag(), flag());
        let all = (begun.clone(), tidy.clone());
        let service = service(layer(&lab).detached(), move |_| {
            let (begun, tidy) = all.clone();
            async move {
                begun.store(true, SeqCst);
                park().await.expect_err("it is told");
                cleanup(kinfolk_core::sleep(SECOND / 100)).await.unwrap();
                tidy.store(true, SeqCst);
                Ok(text("late"))
            }
        });
        let response = tokio::spawn(service.oneshot(get("/pay")));
        set(&begun).await;
        response.abort();
        assert!(lab.root.shutdown().await.unwrap().is_clean());
        assert!(tidy.load(SeqCst));
    });
}

#[test]
fn a_panic_of_the_handler_is_an_answer_and_one_failure() {
    on_each(async |lab| {
        let service = service(layer(&lab), |request: Client| async move {
            match request.uri().path() {
                "/panic" => panic!("the handler panics"),
                _ => Ok(text("well")),
            }
        });
        let response = service.clone().oneshot(get("/panic")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer(&response), Some(LayerAnswer::Failed));
        assert_eq!(words(response).await, "");
        let response = service.clone().oneshot(grpc("/panic")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["grpc-status"], "13");
        lab.is_empty().await;
        let failures = lab.failures();
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].contains("the handler panics"), "{failures:?}");
        // Others go on.
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(words(response).await, "well");
    });
}

/// Also in `call`, before there is a future.
#[test]
fn a_panic_of_the_call_is_an_answer_too() {
    on_each(async |lab| {
        let service = service(layer(&lab), |request: Client| {
            assert_ne!(request.uri().path(), "/", "no root");
            async { Ok(text("")) }
        });
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        lab.is_empty().await;
        assert_eq!(lab.failures().len(), 1);
    });
}

#[test]
fn a_panic_of_the_body_breaks_it_off() {
    on_each(async |lab| {
        let script = |_| async {
            Ok(Response::new(boxed(Script::new([
                Step::Data("one"),
                Step::Panic,
            ]))))
        };
        let service = service(layer(&lab), script);
        let response = service.clone().oneshot(get("/")).await.unwrap();
        let mut body = response.into_body();
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "one");
        let error = body.frame().await.unwrap().expect_err("it is broken off");
        assert_eq!(error.downcast_ref(), Some(&LayerAnswer::Failed));
        assert!(body.frame().await.is_none());
        let response = service.oneshot(grpc("/")).await.unwrap();
        let whole = response.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["grpc-status"], "13");
        lab.is_empty().await;
        assert_eq!(lab.failures().len(), 2);
    });
}

/// An error of the body is the client's, as without the layer, and no failure of the job.
#[test]
fn an_error_of_the_body_is_passed_on() {
    on_each(async |lab| {
        let service = service(layer(&lab), |_| async {
            Ok(Response::new(boxed(Script::new([
                Step::Data("one"),
                Step::Fail,
            ]))))
        });
        let mut body = service.oneshot(get("/")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        let error = body.frame().await.unwrap().expect_err("it fails");
        assert_eq!(error.to_string(), "the body fails");
        assert!(body.frame().await.is_none());
        lab.is_empty().await;
    });
}

#[test]
fn a_cancel_answers_whatever_the_handler_says() {
    on_each(async |lab| {
        let (begun, go) = (flag(), Arc::new(tokio::sync::Semaphore::new(0)));
        let all = (begun.clone(), go.clone());
        let server = lab.scope().task("server").launch(park());
        let below = RequestLayer::new(Scope::of_job(&server));
        let service = service(below, move |_| {
            let (begun, go) = all.clone();
            async move {
                begun.store(true, SeqCst);
                let _swallowed = park().await;
                let _done = cleanup(async { go.acquire().await.map(drop) }).await;
                Ok(text("everything is well"))
            }
        });
        let response = tokio::spawn(service.clone().oneshot(get("/")));
        set(&begun).await;
        begun.store(false, SeqCst);
        let call = tokio::spawn(service.clone().oneshot(grpc("/")));
        set(&begun).await;
        server.cancel("closing time");
        // The clean-up goes on, and the client has its answer.
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer(&response), Some(LayerAnswer::Stopped));
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(lab.tasks().len(), 3);
        // And no new request is taken.
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        go.add_permits(2);
        lab.is_empty().await;
    });
}

#[test]
fn a_deadline_answers_whatever_the_handler_says() {
    on_each(async |lab| {
        let go = Arc::new(Notify::new());
        let goes = go.clone();
        let service = service(layer(&lab).timeout(soon(&lab)), move |_| {
            let goes = goes.clone();
            async move {
                assert!(deadline().is_some());
                // Every error becomes a response: without the layer this is a success.
                let slept = kinfolk_core::sleep(1000 * SECOND).await;
                let _done = cleanup(async { goes.notified().await }).await;
                Ok(text(format!("slept: {}", slept.is_ok())))
            }
        });
        let response = service.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(answer(&response), Some(LayerAnswer::TimedOut));
        // The client does not wait for the clean-up; the scope does.
        assert_eq!(lab.tasks(), ["GET request"]);
        go.notify_one();
        lab.is_empty().await;
        let response = service.oneshot(grpc("/shop.Till/Pay")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["grpc-status"], "4");
        assert_eq!(lab.tasks(), ["/shop.Till/Pay"]);
        go.notify_one();
        lab.is_empty().await;
    });
}

/// A handler that keeps its thread and never waits: the answer is still 504.
#[test]
fn a_busy_handler_is_late_too() {
    on_each(async |lab| {
        let service = service(layer(&lab).timeout(Duration::ZERO), |_| async {
            Ok(text("quick"))
        });
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        lab.is_empty().await;
    });
}

#[test]
fn a_deadline_drops_a_handler_without_a_point() {
    on_each(async |lab| {
        let gone = flag();
        let goes = gone.clone();
        let service = service(layer(&lab).timeout(soon(&lab)), move |_| {
            let dropped = Dropped(goes.clone());
            async move {
                let _dropped = dropped;
                std::future::pending::<Answered>().await
            }
        });
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        lab.is_empty().await;
        assert!(gone.load(SeqCst));
    });
}

#[test]
fn a_deadline_comes_from_a_header_if_it_says_one() {
    on_each(async |lab| {
        let layer = layer(&lab).timeout(7 * SECOND).timeout_header(
            "x-timeout",
            TimeoutFormat::Millis,
            60 * SECOND,
        );
        let service = service(layer, |_| async {
            let left = deadline().expect("there is one") - now();
            Ok(text(left.as_secs_f64().ceil().to_string()))
        });
        let with = async |value: &[u8]| {
            let value = http::HeaderValue::from_bytes(value).unwrap();
            let request = Request::get("/").header("x-timeout", value);
            let response = service.clone().oneshot(request.body(Empty::new()).unwrap());
            words(response.await.unwrap()).await
        };
        assert_eq!(with(b"3000").await, "3");
        assert_eq!(with(b"9000").await, "9", "more than without");
        // No more than the server lets them have.
        assert_eq!(with(b"999999").await, "60");
        assert_eq!(with(b"99999999999999999999999999").await, "60");
        for bad in [
            &b""[..],
            b"soon",
            b"-1",
            b"1.5",
            b"3000 ",
            b"\xff\xfe",
            b"3000,1",
        ] {
            let got = with(bad).await;
            assert_eq!(got, "7", "{bad:?}");
        }
        assert_eq!(
            words(service.clone().oneshot(get("/")).await.unwrap()).await,
            "7"
        );
        // Past from the start.
        let request = Request::get("/").header("x-timeout", "0");
        let response = service.clone().oneshot(request.body(Empty::new()).unwrap());
        assert_eq!(
            response.await.unwrap().status(),
            StatusCode::GATEWAY_TIMEOUT
        );
        lab.is_empty().await;
    });
}

#[test]
fn a_body_keeps_its_job() {
    on_each(async |lab| {
        let polled = Arc::new(AtomicUsize::new(0));
        let (polls, gone) = (polled.clone(), flag());
        let goes = gone.clone();
        let service = service(layer(&lab), move |_| {
            let mut script = Script::new([Step::Data("one"), Step::Data("two"), Step::Hang]);
            script.dropped = goes.clone();
            script.polled = polls.clone();
            async { Ok(Response::new(boxed(script))) }
        });
        let mut body = service.clone().oneshot(get("/")).await.unwrap().into_body();
        assert_eq!(lab.tasks(), ["GET request"]);
        for expected in ["one", "two"] {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), expected);
        }
        assert_eq!(lab.tasks(), ["GET request"]);
        assert!(!gone.load(SeqCst));
        // Dropped half-way: told.
        drop(body);
        lab.is_empty().await;
        assert!(gone.load(SeqCst));
        // One that is never polled: it is not asked for more than one frame.
        polled.store(0, SeqCst);
        gone.store(false, SeqCst);
        let response = service.oneshot(get("/")).await.unwrap();
        while polled.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(polled.load(SeqCst), 2, "one there, one in the hand");
        assert_eq!(lab.tasks(), ["GET request"]);
        drop(response);
        lab.is_empty().await;
        assert!(gone.load(SeqCst));
    });
}

/// A body with points is told, and may clean up, whatever becomes of its client.
#[test]
fn a_body_that_is_dropped_half_way_may_clean_up() {
    on_each(async |lab| {
        let (tidy, go) = (flag(), Arc::new(Notify::new()));
        let all = (tidy.clone(), go.clone());
        let service = service(layer(&lab), move |_| {
            let (tidy, go) = all.clone();
            async move {
                let (lines, body) = http_body_util::channel::Channel::new(1);
                spawn_feeder(lines, tidy, go);
                Ok(Response::new(boxed(body)))
            }
        });
        let mut body = service.oneshot(get("/")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        drop(body);
        go.notify_one();
        lab.is_empty().await;
        assert!(tidy.load(SeqCst));
    });
}

/// A child of the handler that feeds its body.
fn spawn_feeder(
    mut lines: http_body_util::channel::Sender<Bytes, kinfolk_core::BoxError>,
    tidy: Arc<AtomicBool>,
    go: Arc<Notify>,
) {
    drop(kinfolk_core::launch(async move {
        lines.send_data("line".into()).await.unwrap();
        let told = park().await;
        cleanup(async { go.notified().await }).await.unwrap();
        tidy.store(true, SeqCst);
        told.map(drop)
    }));
}

#[test]
fn a_deadline_breaks_a_body_off() {
    on_each(async |lab| {
        let service = service(layer(&lab).timeout(soon(&lab)), |_| async {
            Ok(Response::new(boxed(Script::new([
                Step::Data("one"),
                Step::Hang,
            ]))))
        });
        let mut body = service.clone().oneshot(get("/")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        let error = body.frame().await.unwrap().expect_err("it is broken off");
        assert_eq!(error.downcast_ref(), Some(&LayerAnswer::TimedOut));
        let response = service.oneshot(grpc("/")).await.unwrap();
        let whole = response.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["grpc-status"], "4");
        assert_eq!(whole.to_bytes(), "one");
        lab.is_empty().await;
    });
}

/// Of the answer to a HEAD request hyper takes no frame; that is no client that left.
#[test]
fn a_response_without_a_body_lets_its_children_finish() {
    on_each(async |lab| {
        let (go, done) = (Arc::new(Notify::new()), flag());
        let all = (go.clone(), done.clone());
        let service = service(layer(&lab), move |request: Client| {
            let (go, done) = all.clone();
            async move {
                drop(kinfolk_core::launch(async move {
                    go.notified().await;
                    kinfolk_core::checkpoint().await?;
                    done.store(true, SeqCst);
                    Ok::<_, kinfolk_core::Error>(())
                }));
                let mut response = text("four");
                if request.uri().path() == "/gone" {
                    *response.status_mut() = StatusCode::NO_CONTENT;
                }
                Ok(response)
            }
        });
        let head = Request::head("/").body(Empty::new()).unwrap();
        for request in [head, get("/gone")] {
            done.store(false, SeqCst);
            let response = service.clone().oneshot(request).await.unwrap();
            assert_eq!(response.body().size_hint().exact(), Some(4));
            drop(response);
            go.notify_one();
            lab.is_empty().await;
            assert!(done.load(SeqCst));
        }
        // And one whose bytes have all been taken has ended, though it was not asked again.
        done.store(false, SeqCst);
        let mut body = service.clone().oneshot(get("/")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.is_end_stream());
        drop(body);
        go.notify_one();
        lab.is_empty().await;
        assert!(done.load(SeqCst));
    });
}

#[test]
fn requests_over_the_limit_wait_in_line_and_then_are_shed() {
    on_each(async |lab| {
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let go = Arc::new(Notify::new());
        let all = (order.clone(), go.clone());
        let layer = layer(&lab).limit(1, 3).retry_after(5);
        let mut service = service(layer, move |request: Client| {
            let (order, go) = all.clone();
            async move {
                order.lock().unwrap().push(request.uri().path().to_owned());
                go.notified().await;
                Ok(text(""))
            }
        });
        let mut responses = Vec::new();
        for n in 0..4 {
            responses.push(service.call(get(&format!("/{n}"))));
        }
        let over = service.call(get("/over")).await.unwrap();
        assert_eq!(over.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(over.headers()["retry-after"], "5");
        assert_eq!(
            answer(&over),
            Some(LayerAnswer::Overloaded { retry_after: 5 })
        );
        let over = service.call(grpc("/over")).await.unwrap();
        assert_eq!(over.headers()["grpc-status"], "8");
        // The one in the middle of the line leaves: there is room for another, at its end.
        drop(responses.remove(2));
        let tasks = |n| {
            let lab = lab.clone();
            async move {
                while lab.tasks().len() != n {
                    tokio::task::yield_now().await;
                }
            }
        };
        tasks(3).await;
        responses.push(service.call(get("/4")));
        for n in (0..4).rev() {
            tasks(n + 1).await;
            while order.lock().unwrap().len() != 4 - n {
                tokio::task::yield_now().await;
            }
            go.notify_one();
            assert_eq!(responses.remove(0).await.unwrap().status(), StatusCode::OK);
        }
        lab.is_empty().await;
        assert_eq!(*order.lock().unwrap(), ["/0", "/1", "/3", "/4"]);
    });
}

/// Waiting in line counts against the deadline.
#[test]
fn a_deadline_passes_in_the_line_too() {
    on_each(async |lab| {
        let (begun, go) = (flag(), Arc::new(Notify::new()));
        let all = (begun.clone(), go.clone());
        let layer =
            layer(&lab)
                .limit(1, 9)
                .timeout_header("x-timeout", TimeoutFormat::Millis, SECOND);
        let mut service = service(layer, move |_| {
            let (begun, go) = all.clone();
            async move {
                begun.store(true, SeqCst);
                go.notified().await;
                Ok(text("first"))
            }
        });
        let first = service.call(get("/"));
        set(&begun).await;
        let request = Request::get("/").header("x-timeout", "10");
        let second = service.call(request.body(Empty::new()).unwrap());
        assert_eq!(second.await.unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
        go.notify_one();
        assert_eq!(words(first.await.unwrap()).await, "first");
        lab.is_empty().await;
    });
}

/// The failure of a child is the handler's to report; it is told of it.
#[test]
fn a_child_that_fails_leaves_the_answer_to_the_handler() {
    on_each(async |lab| {
        let service = service(layer(&lab), |_| async {
            let part = spawn(async { Err::<(), _>(kinfolk_core::Error::msg("no part")) });
            match part.await {
                Ok(()) => Ok(text("whole")),
                Err(error) => {
                    let mut response = text(error.to_string());
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    Ok(response)
                }
            }
        });
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert!(words(response).await.contains("no part"));
        lab.is_empty().await;
        assert_eq!(lab.failures().len(), 1);
    });
}

/// A scope that was closed takes no request, and says so.
#[test]
fn a_closed_scope_is_an_answer() {
    on_each(async |lab| {
        let scope = lab.scope();
        let service = service(layer(&lab), |_| async { Ok(text("")) });
        scope.close();
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    });
}

/// One that is stuck is dropped when its patience is over, and its client has been answered.
#[test]
fn a_stuck_handler_is_dropped_when_its_patience_is_over() {
    on_each(async |lab| {
        let begun = flag();
        let begins = begun.clone();
        let patience = Patience {
            unaware: SECOND / 100,
            ..Patience::default()
        };
        let service = service(layer(&lab).patience(patience), move |_| {
            begins.store(true, SeqCst);
            std::future::pending::<Answered>()
        });
        let response = tokio::spawn(service.oneshot(get("/")));
        set(&begun).await;
        let began = tokio::time::Instant::now();
        let report = lab.root.shutdown().await.unwrap();
        assert_eq!(report.dropped.len(), 1, "{report}");
        assert!(began.elapsed() < SECOND, "without it that takes a second");
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(lab.forced.swap(0, SeqCst), 1);
    });
}

/// The service's own errors are passed on.
#[test]
fn an_error_of_the_service_is_its_callers() {
    on_each(async |lab| {
        let inner = service_fn(|_: Client| async {
            Err::<Response<AnyBody>, _>(std::io::Error::other("no service"))
        });
        let service = layer(&lab).layer(inner);
        let error = service.oneshot(get("/")).await.unwrap_err();
        assert_eq!(error.to_string(), "no service");
        lab.is_empty().await;
    });
}
