// error: E0277
// says: write `.or_fail()?` here
#[derive(Debug)]
pub struct Mine;

pub async fn f(r: Result<i32, Mine>) -> kinfolk_core::Result<i32> {
    kinfolk_core::scope(async |_s| Ok(r?)).await
}
