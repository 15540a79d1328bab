// error: E0277
fn send<T: Send>(_: T) {}

pub fn f() {
    let here = std::rc::Rc::new(1);
    send(kinfolk_core::scope(async |_s| {
        kinfolk_core::checkpoint().await?;
        Ok(*here)
    }));
}
