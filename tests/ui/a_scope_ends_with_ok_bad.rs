// error: E0277
// says: the body of a scope returns `()`, not a `kinfolk::Result`
// says: end this body with `Ok(value)`, or with `Ok(())`
async fn work() {}

pub async fn f() -> kinfolk_core::Result<()> {
    kinfolk_core::scope(async |_s| {
        work().await;
    })
    .await
}
