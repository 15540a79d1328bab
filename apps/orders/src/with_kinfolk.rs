//! The service on Kinfolk: each request is a job of the server's scope, and its work is a
//! child of it, which is told when the client hangs up, when time is up and when the server
//! stops, and undoes what it has done.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::post;
use kinfolk::{
    OrCancel, OrFail, Result, Scope, cleanup, park, scope, shield, sleep, spawn, timeout,
};
use kinfolk_tokio::TokenExt;
use tokio::net::TcpListener;

use crate::shop::Shop;
use crate::tally::{Tally, Work};
use crate::{GRACE, LIMIT};

/// Serves until its job is told, and a grace longer.
///
/// # Errors
/// Of the network.
pub async fn serve(listener: TcpListener, shop: Shop, tally: Tally) -> Result<()> {
    scope(async |server: Scope| {
        let theirs = tally.clone();
        server.on_cancel(move |_| theirs.stopping()).keep();
        let told = server.token();
        let requests = Scope::named("requests").supervisor();
        shield(requests.run(async |requests: Scope| {
            let (stops, is_told) = (requests.clone(), told.clone());
            // A service: it ends with the requests.
            let grace = requests.spawn_service(async move {
                is_told.cancelled_owned().or_cancel().await?;
                sleep(GRACE).await?;
                stops.cancel("the grace is spent");
                park().await
            });
            grace.into_job();
            let handler =
                move |Path(id): Path<i64>| order(requests.clone(), shop.clone(), tally.clone(), id);
            let router = Router::new().route("/order/{id}", post(handler));
            let serve = axum::serve(listener, router);
            serve.with_graceful_shutdown(told.cancelled_owned()).await?;
            Ok(())
        }))
        .await
    })
    .await
}

async fn order(requests: Scope, shop: Shop, tally: Tally, id: i64) -> StatusCode {
    let (visit, work) = tally.visit();
    let request = requests.task("order").host(async {
        // A child: if the client hangs up, axum drops all but that.
        spawn(fulfil(shop, work, id)).await
    });
    let status = match request.await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    visit.answered();
    status
}

async fn fulfil(shop: Shop, _work: Work, id: i64) -> Result<()> {
    let steps = async {
        // The database goes on with what it was asked, also when no future waits for it.
        shield(async { shop.reserve(id).await.or_fail() }).await?;
        let charge = async { shop.charge(id).or_cancel().await?.or_fail() };
        timeout(LIMIT, charge).await?;
        shield(async { shop.confirm(id).await.or_fail() }).await
    };
    let done = steps.await;
    if done.is_err() {
        cleanup(async { shop.undo(id).await.or_fail() }).await?;
    }
    done
}
