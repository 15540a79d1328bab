// error: future cannot be sent between threads safely
pub fn f(s: &kinfolk_core::Scope) {
    let shared = std::rc::Rc::new(1);
    s.launch(async move {
        kinfolk_core::checkpoint().await?;
        drop(shared);
        Ok::<_, kinfolk_core::Error>(())
    });
}
