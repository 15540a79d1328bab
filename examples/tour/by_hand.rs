//! The server as one writes it today: `select!`, a `JoinSet` and a token.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::wire::{Conn, Store};

async fn handle(mut conn: Conn, store: Store, token: CancellationToken) {
    let mut batch = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    loop {
        tokio::select! {
            () = token.cancelled() => break,
            _ = tick.tick() => {
                let (store, batch) = (store.clone(), std::mem::take(&mut batch));
                tokio::spawn(async move { store.write(batch).await });
            }
            record = conn.read_record() => match record {
                Ok(record) => batch.push(record),
                Err(_) => break,
            },
        }
    }
    store.write(batch).await;
}

pub async fn serve(clients: Vec<(Conn, Duration)>, store: Store) {
    let stop = CancellationToken::new();
    let mut handlers = JoinSet::new();
    for (conn, kicked) in clients {
        let token = stop.child_token();
        handlers.spawn(handle(conn, store.clone(), token.clone()));
        tokio::spawn(async move {
            tokio::time::sleep(kicked).await;
            token.cancel();
        });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.cancel();
    let grace = Duration::from_millis(500);
    let _ = tokio::time::timeout(grace, async {
        while handlers.join_next().await.is_some() {}
    })
    .await;
    handlers.shutdown().await;
}
