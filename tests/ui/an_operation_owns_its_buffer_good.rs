// with: kinfolk_runtime
pub async fn f(stream: &kinfolk_runtime::net::TcpStream) -> String {
    let text = String::from("hello");
    let (_written, text) = stream.write_all(text).await;
    text
}
