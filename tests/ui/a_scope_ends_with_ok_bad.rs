// error: E0308
// says: expected `Result<_, kinfolk_core::Error>`, found `()`
async fn work() {}

pub async fn f() -> kinfolk_core::Result<()> {
    kinfolk_core::scope(async |_s| {
        work().await;
    })
    .await
}
