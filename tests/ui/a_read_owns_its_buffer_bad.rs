// error: E0277
// with: kinfolk_runtime
// says: the operation owns its buffer: pass a `Vec<u8>`, `[u8; N]` or `BytesMut` and take it back
pub async fn f(stream: &kinfolk_runtime::net::TcpStream) {
    let mut buf = [0_u8; 16];
    let _ = stream.read(&mut buf[..]).await;
}
