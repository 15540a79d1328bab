fn send<T: Send>(_: T) {}

pub fn f() {
    let here = std::sync::Arc::new(1);
    let borrowed = &here;
    send(kinfolk_core::scope(async |s| {
        let child = s.spawn(async { 1 });
        kinfolk_core::checkpoint().await?;
        kinfolk_core::scope(async |_inner| Ok(**borrowed)).await?;
        Ok(child.await? + **borrowed)
    }));
}
