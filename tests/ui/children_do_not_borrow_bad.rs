// error: E0597
pub fn f(s: &kinfolk_core::Scope) {
    let text = String::from("mine");
    let borrowed = &text;
    s.launch(async move { borrowed.len() });
}
