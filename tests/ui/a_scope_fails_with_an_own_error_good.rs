#[derive(Debug)]
pub struct Mine;

impl std::fmt::Display for Mine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mine")
    }
}

impl std::error::Error for Mine {}

impl From<kinfolk_core::Error> for Mine {
    fn from(_: kinfolk_core::Error) -> Self {
        Mine
    }
}

pub async fn f() -> Result<i32, Mine> {
    kinfolk_core::scope_as::<Mine, _>(async |_s| Err(Mine)).await
}
