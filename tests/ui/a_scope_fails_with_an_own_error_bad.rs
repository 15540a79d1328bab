// error: E0277
#[derive(Debug)]
pub struct Mine;

impl std::fmt::Display for Mine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mine")
    }
}

impl std::error::Error for Mine {}

// No `From<kinfolk_core::Error>`: it could not say that the time was up.
pub async fn f() -> Result<i32, Mine> {
    kinfolk_core::scope_as::<Mine, _>(async |_s| Err(Mine)).await
}
