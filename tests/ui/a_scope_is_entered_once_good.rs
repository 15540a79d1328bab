pub async fn f() {
    let _ = kinfolk_core::Scope::named("once").run(async |_s| Ok(1)).await;
    let _ = kinfolk_core::Scope::named("twice").run(async |_s| Ok(2)).await;
}
