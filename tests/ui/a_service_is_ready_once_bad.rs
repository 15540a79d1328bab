// error: E0382
pub async fn f(ready: kinfolk_core::Ready<u32>) {
    ready.ready(1);
    ready.ready(2);
}
