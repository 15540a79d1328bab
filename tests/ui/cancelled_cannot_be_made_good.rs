pub async fn told() -> Result<(), kinfolk_core::Cancelled> {
    kinfolk_core::checkpoint().await
}
