use kinfolk_core::OrFail;

#[derive(Debug)]
pub struct Mine;

impl std::fmt::Display for Mine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mine")
    }
}

impl std::error::Error for Mine {}

pub async fn f(r: Result<i32, Mine>, n: &str) -> kinfolk_core::Result<i32> {
    kinfolk_core::scope(async |_s| Ok(r.or_fail()? + n.parse::<i32>()?)).await
}
