//! The service with axum alone, as in its examples of a database and of a graceful shutdown:
//! the handler does the work, under a time limit.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::shop::Shop;
use crate::tally::Tally;
use crate::{BoxError, GRACE, LIMIT};

/// Serves until SIGTERM, and a grace longer.
///
/// # Errors
/// Of the network.
pub async fn serve(listener: TcpListener, shop: Shop, tally: Tally) -> Result<(), BoxError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let (told, mut is_told) = tokio::sync::watch::channel(());
    let theirs = tally.clone();
    let router = Router::new().route("/order/{id}", post(order));
    let serve = axum::serve(listener, router.with_state((shop, tally)));
    let serve = serve.with_graceful_shutdown(async move {
        terminate.recv().await;
        theirs.stopping();
        drop(told);
    });
    let spent = async {
        let _ = is_told.changed().await;
        tokio::time::sleep(GRACE).await;
    };
    // A connection that is still there after the grace goes with the runtime.
    tokio::select! {
        served = serve => served?,
        () = spent => {}
    }
    Ok(())
}

async fn order(State((shop, tally)): State<(Shop, Tally)>, Path(id): Path<i64>) -> StatusCode {
    let (visit, work) = tally.visit();
    let steps = async {
        shop.reserve(id).await?;
        timeout(LIMIT, shop.charge(id)).await??;
        shop.confirm(id).await
    };
    let status = match steps.await {
        Ok(()) => StatusCode::OK,
        Err::<(), BoxError>(_) => {
            let _ = shop.undo(id).await;
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    drop(work);
    visit.answered();
    status
}
