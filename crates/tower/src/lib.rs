//! Every request a job: a tower layer and a server for axum, tonic and hyper services on tokio.
//!
//! With axum or tonic alone, a handler is a future that the server polls and drops. When its
//! client hangs up it is dropped where it waits, and what it has spawned runs on; its deadline
//! is an error that the handler may turn into a response; a shutdown does not know it. Behind
//! a [`RequestLayer`] each request is a job below a scope of the tree of
//! [`kinfolk_tokio::Root`].
//!
//! ```
//! # mod kinfolk { pub use kinfolk_core::*; pub mod tokio { pub use kinfolk_tokio::*; } }
//! use std::time::Duration;
//!
//! use axum::{Router, extract::Path, routing::get};
//! use kinfolk::{sleep, spawn, tokio::Root};
//! use kinfolk_tower::RequestLayer;
//! # use tower::ServiceExt;
//!
//! async fn item(Path(id): Path<u32>) -> String {
//!     // A child of the request: told and waited for if the client hangs up.
//!     let price = spawn(async move { id * 3 });
//!     match price.await {
//!         Ok(price) => format!("item {id} costs {price}"),
//!         Err(error) => format!("no price: {error}"),
//!     }
//! }
//!
//! async fn slow() -> String {
//!     // Told when the deadline passes. What it returns then is not sent: the answer is 504.
//!     match sleep(Duration::from_secs(3600)).await {
//!         Ok(()) => "slept".into(),
//!         Err(told) => format!("all is well ({told})"),
//!     }
//! }
//!
//! # async fn ask(app: &Router, path: &str) -> axum::response::Response {
//! #     let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
//! #     app.clone().oneshot(request).await.unwrap()
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> kinfolk::Result<()> {
//! let requests = RequestLayer::new(Root::current().scope())
//!     .timeout(Duration::from_millis(20))
//!     .limit(512, 1024);
//! let app = Router::new()
//!     .route("/item/{id}", get(item))
//!     .route("/slow", get(slow))
//!     .layer(requests);
//! # let response = ask(&app, "/item/14").await;
//! # let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
//! # assert_eq!(body, "item 14 costs 42");
//! # assert_eq!(ask(&app, "/slow").await.status(), 504);
//! # Root::current().shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`RequestLayer`] says what a client gets and what a handler is told, and when. It works in
//! every server that takes tower services, `axum::serve` among them. [`Server`] is one whose
//! shutdown the tree drives: it stops when its job is cancelled, and waits for its requests.
//!
//! With the feature `axum` a job is named after the route that axum has matched: `GET
//! /item/{id}`. For that the layer stands on the router (`Router::layer`) or on a route.

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod admission;
mod answer;
mod connection;
mod exchange;
mod layer;
mod listen;
mod request_job;
mod response;
mod route_name;
mod serve_report;
mod server;
mod time_limit;

pub use answer::LayerAnswer;
pub use layer::{RequestLayer, RequestService};
pub use listen::Listen;
pub use request_job::CLIENT_GONE;
pub use response::{RequestBody, RequestFuture};
pub use serve_report::ServeReport;
pub use server::Server;
pub use time_limit::TimeoutFormat;
