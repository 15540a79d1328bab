// error: E0597
// says: // to borrow: `local_scope`
pub fn f(s: &kinfolk_core::Scope) {
    let text = String::from("mine");
    let borrowed = &text;
    s.launch(async move { borrowed.len() });
}
