//! A TCP proxy: each connection is passed on to another address, in both directions. Stopped,
//! it says how much each connection has carried.

use std::net::SocketAddr;

use kinfolk::io::copy_bidirectional;
use kinfolk::net::{TcpListener, TcpStream};
use kinfolk::{Result, scope};

#[kinfolk::main]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7001").await?;
    println!("{} leads to 127.0.0.1:7000", listener.local_addr()?);
    proxy(listener, SocketAddr::from(([127, 0, 0, 1], 7000))).await
}

async fn proxy(listener: TcpListener, to: SocketAddr) -> Result<()> {
    scope(async move |s| {
        let mut incoming = listener.incoming();
        while let Some(client) = incoming.next().await {
            let client = client?;
            s.launch(async move {
                if let Err(error) = connection(client, to).await {
                    println!("a connection has ended: {error}");
                }
            });
        }
        Ok(())
    })
    .await
}

async fn connection(client: TcpStream, to: SocketAddr) -> Result<()> {
    let server = TcpStream::connect(to).await?;
    let mut copy = copy_bidirectional(client, server);
    let copied = (&mut copy).await;
    let (up, down) = copy.written(); // also if it was told to stop
    println!("{up} bytes up, {down} bytes down");
    copied?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinfolk::io::{BufReader, BufWriter};
    use kinfolk::spawn;

    /// The client ends its direction, and gets the answer after that.
    #[kinfolk::test]
    async fn a_half_close_is_passed_on() -> Result<()> {
        let far = TcpListener::bind("127.0.0.1:0").await?;
        let to = far.local_addr()?;
        let near = TcpListener::bind("127.0.0.1:0").await?;
        let addr = near.local_addr()?;
        let proxy = spawn(proxy(near, to));
        let server = spawn(async move {
            let (stream, _) = far.accept().await?;
            let asked = BufReader::new(&stream).read_to_end().await?;
            let mut out = BufWriter::new(&stream);
            out.write_all(asked.to_ascii_uppercase()).await?;
            out.shutdown().await?;
            Ok::<_, kinfolk::Error>(())
        });
        let client = TcpStream::connect(addr).await?;
        let mut out = BufWriter::new(&client);
        out.write_all("question").await?;
        out.shutdown().await?;
        assert_eq!(BufReader::new(&client).read_to_end().await?, b"QUESTION");
        server.await?;
        proxy.cancel("enough");
        assert!(proxy.outcome().await?.is_cancelled());
        Ok(())
    }
}
