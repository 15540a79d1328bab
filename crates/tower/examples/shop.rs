//! A shop over HTTP: every request is a job, and Ctrl-C or SIGTERM end the server within a grace.
//!
//! ```sh
//! cargo run -p kinfolk-tower --features axum --example shop
//! curl localhost:3000/item/7
//! curl localhost:3000/slow                 # 504 after two seconds
//! curl -H 'x-timeout-ms: 50' localhost:3000/slow
//! curl -X POST localhost:3000/pay          # goes on if curl is interrupted
//! curl localhost:3000/jobs                 # the tree
//! ```

use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use kinfolk_core::{Result, Scope, checkpoint, cleanup, sleep, spawn};
use kinfolk_tokio::Root;
use kinfolk_tower::{RequestLayer, Server, TimeoutFormat};
use tokio::net::TcpListener;

async fn item(Path(id): Path<u32>) -> String {
    // Two children: both are told if the client hangs up.
    let (price, stock) = (spawn(async move { id * 3 }), spawn(async move { id % 5 }));
    match (price.await, stock.await) {
        (Ok(price), Ok(stock)) => format!("item {id}: {stock} there, {price} each\n"),
        _ => "no such item\n".into(),
    }
}

async fn slow() -> &'static str {
    if sleep(Duration::from_secs(3600)).await.is_err() {
        // Told: the client is gone, the deadline has passed, or the server stops. Awaiting
        // works again in here, and the shutdown waits for it.
        let _flushed = cleanup(sleep(Duration::from_millis(100))).await;
    }
    "the layer answers in the place of this\n"
}

async fn pay() -> &'static str {
    let _paid = sleep(Duration::from_secs(3)).await;
    "paid\n"
}

fn shop(requests: Scope, root: Root) -> Router {
    let layer = RequestLayer::new(requests)
        .timeout(Duration::from_secs(2))
        .timeout_header(
            "x-timeout-ms",
            TimeoutFormat::Millis,
            Duration::from_secs(10),
        )
        .limit(256, 1024);
    let detached = layer.clone().timeout(Duration::from_secs(10)).detached();
    Router::new()
        .route("/item/{id}", get(item))
        .route("/slow", get(slow))
        .route("/jobs", get(async move || root.snapshot().to_string()))
        .layer(layer)
        .route("/pay", post(pay).layer(detached))
}

async fn serve(root: Root) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let server = Server::new(&root, listener).connections(10_000);
    let report = server.serve(|requests| shop(requests, root)).await?;
    println!("{report}");
    checkpoint().await?; // why it has stopped, for the exit code
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let root = Root::builder().signals(true).build_current();
    let root = root.expect("the first root of this runtime");
    root.run_main(serve(root.clone())).await
}
