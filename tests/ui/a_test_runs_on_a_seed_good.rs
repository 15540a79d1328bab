// with: kinfolk
#[kinfolk::test(seeds = 1)]
async fn green_for_a_reason() {}
