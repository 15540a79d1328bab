//! The service on Kinfolk: each request is a job of the server, told when its client hangs up,
//! when time is up and when the server stops; it undoes what it has done, and the server waits
//! for that.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use kinfolk::tokio::Root;
use kinfolk::{OrCancel, OrFail, Result, cleanup, on_cancel, shield, timeout};
use kinfolk_tower::{RequestLayer, ServeReport, Server};
use tokio::net::TcpListener;

use crate::Limits;
use crate::shop::Shop;
use crate::tally::{Tally, Work};

/// A root that hears SIGTERM.
///
/// # Errors
/// If this tokio runtime has a root already.
pub fn root(limits: Limits) -> Result<Root> {
    let grace = limits.grace.saturating_add(limits.undo);
    Root::builder().signals(true).grace(grace).build_current()
}

/// Serves until its job is told, and a grace longer.
///
/// # Errors
/// Of the network.
pub async fn serve(
    root: Root,
    listener: TcpListener,
    shop: Shop,
    tally: Tally,
    limits: Limits,
) -> Result<ServeReport> {
    let theirs = tally.clone();
    let _told = on_cancel(move |_| theirs.stopping());
    let server = Server::new(&root, listener).grace(limits.grace);
    let served = server.serve(move |requests| {
        let router = Router::new().route("/order/{id}", post(order));
        let router = router.with_state((shop, limits));
        tally.around(router.layer(RequestLayer::new(requests)))
    });
    served.await
}

async fn order(
    State((shop, limits)): State<(Shop, Limits)>,
    Extension(_work): Extension<Work>,
    Path(id): Path<i64>,
) -> StatusCode {
    match fulfil(shop, limits, id).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn fulfil(shop: Shop, limits: Limits, id: i64) -> Result<()> {
    let steps = async {
        // The database goes on with what it was asked, also when no future waits for it.
        shield(async { shop.reserve(id).await.or_fail() }).await?;
        let charge = async { shop.charge(id).or_cancel().await?.or_fail() };
        timeout(limits.bank, charge).await?;
        shield(async { shop.confirm(id).await.or_fail() }).await
    };
    let done = steps.await;
    if done.is_err() {
        cleanup(async { shop.undo(id).await.or_fail() }).await?;
    }
    done
}
