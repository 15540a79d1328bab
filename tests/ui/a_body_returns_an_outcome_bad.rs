// error: E0277
pub struct User;

pub fn f(s: &kinfolk_core::Scope) {
    s.launch(async { User });
}
