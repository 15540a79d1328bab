// error: E0382
pub async fn f() {
    let scope = kinfolk_core::Scope::named("once");
    let _ = scope.run(async |_s| Ok(1)).await;
    let _ = scope.run(async |_s| Ok(2)).await;
}
