//! Behind an axum router: names after routes, a layer for a route alone.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use common::{SECOND, flag, on_each, set};
use kinfolk_core::{Scope, park};
use kinfolk_tower::RequestLayer;
use tokio::sync::Notify;
use tower::ServiceExt;

fn request(method: &str, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request.body(Body::empty()).unwrap()
}

#[test]
fn a_request_is_named_after_its_route() {
    on_each(async |lab| {
        let name = |State(_): State<()>, Path(_): Path<u32>| async {
            let scope = Scope::current().unwrap();
            let task = std::iter::successors(Some(scope.job()), |job| job.parent());
            let names: Vec<_> = task.map(|job| job.name()).collect();
            names
                .into_iter()
                .find(|name| name.starts_with("GET"))
                .unwrap()
        };
        let users = Router::new().route("/{id}/name", get(name));
        let app = Router::new()
            .nest("/users", users)
            .route("/items/{id}", get(name))
            .layer(RequestLayer::new(lab.scope()));
        for (path, expected) in [
            ("/items/7", "GET /items/{id}"),
            ("/users/7/name", "GET /users/{id}/name"),
        ] {
            let response = app.clone().oneshot(request("GET", path)).await.unwrap();
            let body = to_bytes(response.into_body(), 1000).await.unwrap();
            assert_eq!(body, expected);
        }
        // No route: its name is not the client's.
        let response = app.oneshot(request("GET", "/no/such")).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        lab.is_empty().await;
    });
}

/// A route of its own goes on without its client, below the same scope.
#[test]
fn one_route_is_detached() {
    on_each(async |lab| {
        let (begun, paid, told, go) = (flag(), flag(), flag(), Arc::new(Notify::new()));
        let all = (begun.clone(), paid.clone(), go.clone());
        let pay = move || {
            let (begun, paid, go) = all.clone();
            async move {
                begun.store(true, SeqCst);
                go.notified().await;
                paid.store(true, SeqCst);
            }
        };
        let all = (begun.clone(), told.clone());
        let look = move || {
            let (begun, told) = all.clone();
            async move {
                begun.store(true, SeqCst);
                told.store(park().await.is_err(), SeqCst);
            }
        };
        let requests = RequestLayer::new(lab.scope()).timeout(100 * SECOND);
        let app = Router::new()
            .route("/look", get(look).layer(requests.clone()))
            .route("/pay", post(pay).layer(requests.detached()));
        for (method, path) in [("GET", "/look"), ("POST", "/pay")] {
            let response = tokio::spawn(app.clone().oneshot(request(method, path)));
            set(&begun).await;
            begun.store(false, SeqCst);
            response.abort();
        }
        set(&told).await;
        while lab.tasks() != ["POST /pay"] {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        lab.is_empty().await;
        assert!(paid.load(SeqCst));
    });
}
