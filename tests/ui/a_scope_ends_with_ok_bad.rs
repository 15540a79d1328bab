// error: E0308
// says: Result<_, kinfolk_core::Error>
async fn work() {}

pub async fn f() -> kinfolk_core::Result<()> {
    kinfolk_core::scope(async |_s| {
        work().await;
    })
    .await
}
