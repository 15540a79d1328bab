// with: kinfolk
use kinfolk::prelude::*;

#[test]
fn adds() {
    assert_eq!(1 + 1, 2);
}

pub async fn nap() -> kinfolk::Result<()> {
    scope(async |_| Ok(sleep(std::time::Duration::ZERO).await?)).await
}
