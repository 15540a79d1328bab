async fn work() {}

pub async fn f(text: String) -> kinfolk_core::Result<usize> {
    kinfolk_core::scope(async |_s| {
        work().await;
        Ok(())
    })
    .await?;
    // The types of the value and of the error follow without a word.
    let digits = kinfolk_core::scope(async |s| {
        let number = s.spawn(async move { text.parse::<u32>() }).await?;
        if number == 0 {
            return Err(kinfolk_core::Error::msg("nothing"));
        }
        Ok(vec![number.checked_add(1)])
    })
    .await?
    .len();
    let named = kinfolk_core::Scope::named("more").run(async |_| Ok("7".parse::<u8>()?));
    Ok(digits + usize::from(named.await?.pow(2)))
}

/// A body that never returns needs no type either.
pub async fn serve() -> kinfolk_core::Result<()> {
    kinfolk_core::scope(async |s| {
        loop {
            kinfolk_core::checkpoint().await?;
            s.launch(work());
        }
    })
    .await
}
