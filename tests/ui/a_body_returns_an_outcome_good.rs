pub struct User;

impl kinfolk_core::Success for User {}

pub fn f(s: &kinfolk_core::Scope) {
    s.launch(async { User });
}
