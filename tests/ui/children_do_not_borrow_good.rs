pub async fn f(text: &str) -> kinfolk_core::Result<usize> {
    kinfolk_core::scope(async |s| {
        let owned = text.to_string();
        let task = s.spawn(async move { owned.len() });
        // The body itself may borrow.
        Ok(text.len().max(task.await?))
    })
    .await
}
