// with: kinfolk_runtime
pub async fn f(stream: &kinfolk_runtime::net::TcpStream) -> [u8; 16] {
    let (_read, buf) = stream.read([0_u8; 16]).await;
    buf
}
