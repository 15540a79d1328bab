//! HTTP on this machine: the same hyper and the same clients, on one thread. What
//! counts is what the server spends.

use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use kinfolk_adapters::Polled;
use kinfolk_adapters::hyper::serve;
use kinfolk_runtime::net::TcpListener;

use crate::contestant::{Bar, Bench, Contestant, Group, Target, Unit, native};
use crate::ways::{self, Way};

use super::clients::{HELLO, Load, Round, Talk};

/// Of what the server spends.
const TARGETS: &[Target] = &[native(Bar::Of("tokio", 1.0))];

const BENCHES: [Bench; 4] = [
    bench(
        "http hello, server cpu",
        "64 connections, a short request and a short answer of hyper's, again and again. Processor time of the server.",
        TARGETS,
    ),
    bench(
        "http hello, wall",
        "The same. Time of the whole, for all clients together.",
        &[],
    ),
    bench(
        "http hello, p50",
        "The same. How long half of the requests take at most.",
        &[],
    ),
    bench(
        "http hello, p99",
        "The same. How long all but one in a hundred take at most.",
        &[],
    ),
];

const fn bench(name: &'static str, what: &'static str, targets: &'static [Target]) -> Bench {
    Bench {
        name,
        what,
        per: "request",
        unit: Unit::Nanoseconds,
        targets,
    }
}

async fn hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(HELLO.into()))
}

async fn kinfolk(load: Load) -> kinfolk_core::Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let round = Round::begin(listener.local_addr()?, load);
    kinfolk_core::scope(async |scope| {
        for _ in 0..load.connections {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            scope.launch(async move {
                let http =
                    http1::Builder::new().serve_connection(Polled::new(stream), service_fn(hello));
                // Clients close when they are done, which may look like an error.
                let _ = serve(http, |http| http.graceful_shutdown()).await;
            });
        }
        Ok(())
    })
    .await?;
    Ok(round.end())
}

async fn tokio_http(load: Load) -> Vec<f64> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a listener");
    let round = Round::begin(listener.local_addr().expect("an address"), load);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..load.connections {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        tasks.spawn(async move {
            let stream = hyper_util::rt::TokioIo::new(stream);
            let http = http1::Builder::new().serve_connection(stream, service_fn(hello));
            let _ = http.await;
        });
    }
    while tasks.join_next().await.is_some() {}
    round.end()
}

pub fn groups() -> Vec<Group> {
    let load = Load::new(64, Talk::Http, 32_000);
    let contestants = vec![
        Contestant::ours(Way::NativeOne.name(), move || {
            Way::NativeOne.run(kinfolk(load))
        }),
        Contestant::variant("kinfolk, readiness", move || {
            ways::native_readiness(kinfolk(load))
        }),
        Contestant::peer("tokio", move || ways::tokio_one(tokio_http(load))),
    ];
    vec![Group {
        benches: BENCHES.into(),
        contestants,
        most_rounds: 9,
    }]
}
