// error: E0277
// with: kinfolk_runtime
// says: the operation owns its buffer: pass a `Vec<u8>`, `String` or `Bytes` and take it back
pub async fn f(stream: &kinfolk_runtime::net::TcpStream) {
    let text = String::from("hello");
    let _ = stream.write_all(&text).await;
}
