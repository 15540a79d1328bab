//! The service with axum alone, as in its examples of a database and of a graceful shutdown:
//! the handler does the work, under a time limit.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::shop::Shop;
use crate::tally::{Tally, Work};
use crate::{BoxError, Limits};

/// Serves until SIGTERM, and a grace longer.
///
/// # Errors
/// Of the network.
pub async fn serve(
    listener: TcpListener,
    shop: Shop,
    tally: Tally,
    limits: Limits,
) -> Result<(), BoxError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let (told, mut is_told) = tokio::sync::watch::channel(());
    let theirs = tally.clone();
    let router = Router::new().route("/order/{id}", post(order));
    let router = tally.around(router.with_state((shop, limits)));
    let serve = axum::serve(listener, router);
    let serve = serve.with_graceful_shutdown(async move {
        terminate.recv().await;
        theirs.stopping();
        drop(told);
    });
    let spent = async {
        let _ = is_told.changed().await;
        tokio::time::sleep(limits.grace).await;
    };
    // A connection that is still there after the grace goes with the runtime.
    tokio::select! {
        served = serve => served?,
        () = spent => {}
    }
    Ok(())
}

async fn order(
    State((shop, limits)): State<(Shop, Limits)>,
    Extension(_work): Extension<Work>,
    Path(id): Path<i64>,
) -> StatusCode {
    let steps = async {
        shop.reserve(id).await?;
        timeout(limits.bank, shop.charge(id)).await??;
        shop.confirm(id).await
    };
    match steps.await {
        Ok(()) => StatusCode::OK,
        Err::<(), BoxError>(_) => {
            let _ = shop.undo(id).await;
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}
