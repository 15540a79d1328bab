// error: E0277
// says: a body cannot return `User`: it returns a type that implements `kinfolk::Success`
pub struct User;

pub fn f(s: &kinfolk_core::Scope) {
    s.launch(async { User });
}
