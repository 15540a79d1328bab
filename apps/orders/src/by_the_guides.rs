//! The service as tokio's guides advise: the work is a task, so that no hang-up can cut it in
//! two; a `TaskTracker` waits for these tasks, and a `CancellationToken` tells them when the
//! grace after SIGTERM is spent.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::shop::Shop;
use crate::tally::{Tally, Work};
use crate::{BoxError, Limits};

/// What the handlers share.
#[derive(Clone)]
struct Shared {
    shop: Shop,
    limits: Limits,
    tracker: TaskTracker,
    token: CancellationToken,
}

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
    let (tracker, token) = (TaskTracker::new(), CancellationToken::new());
    let told = CancellationToken::new();
    let shared = Shared {
        shop,
        limits,
        tracker: tracker.clone(),
        token: token.clone(),
    };
    let router = Router::new().route("/order/{id}", post(order));
    let router = tally.clone().around(router.with_state(shared));
    let serve = axum::serve(listener, router);
    let serve = serve.with_graceful_shutdown(told.clone().cancelled_owned());
    let stop = async {
        terminate.recv().await;
        tally.stopping();
        told.cancel();
        tokio::time::sleep(limits.grace).await;
        token.cancel();
        std::future::pending::<()>().await;
    };
    let all = async {
        serve.await?;
        tracker.close();
        tracker.wait().await;
        Ok::<_, BoxError>(())
    };
    tokio::select! {
        served = all => served,
        () = stop => Ok(()),
    }
}

async fn order(
    State(shared): State<Shared>,
    Extension(work): Extension<Work>,
    Path(id): Path<i64>,
) -> StatusCode {
    let Shared {
        shop,
        limits,
        tracker,
        token,
    } = shared;
    let task = tracker.spawn(async move {
        let _work = work;
        let steps = async {
            shop.reserve(id).await?;
            tokio::select! {
                done = timeout(limits.bank, shop.charge(id)) => done??,
                () = token.cancelled() => return Err("the server stops".into()),
            }
            shop.confirm(id).await
        };
        let done: Result<(), BoxError> = steps.await;
        if done.is_err() {
            let _ = shop.undo(id).await;
        }
        done.is_ok()
    });
    match task.await {
        Ok(true) => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}
