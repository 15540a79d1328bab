// error: E0277
#[derive(Debug)]
pub struct Mine;

pub async fn f(r: Result<i32, Mine>) -> kinfolk_core::Result<i32> {
    kinfolk_core::scope(async |_s| Ok(r?)).await
}
