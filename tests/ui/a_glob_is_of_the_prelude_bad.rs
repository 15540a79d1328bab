// error: E0659
// says: `test` is ambiguous
// with: kinfolk
use kinfolk::*;

#[test]
fn adds() {
    assert_eq!(1 + 1, 2);
}

pub async fn nap() -> Result<()> {
    Ok(yield_now().await?)
}
