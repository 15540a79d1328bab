// error: seeds = 0 runs nothing: give at least one
// with: kinfolk
#[kinfolk::test(seeds = 0)]
async fn green_for_nothing() {}
