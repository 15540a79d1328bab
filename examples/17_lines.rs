//! A server that keeps a list: `add WORD` and `list`, a line each. Stopped, it says goodbye to
//! each client behind the answers that are still to be written.

use kinfolk::io::{self, BufReader, BufWriter};
use kinfolk::net::{TcpListener, TcpStream};
use kinfolk::{Result, cleanup, scope};

#[kinfolk::main]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7000").await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener).await
}

async fn serve(listener: TcpListener) -> Result<()> {
    scope(async move |s| {
        let mut incoming = listener.incoming();
        while let Some(stream) = incoming.next().await {
            s.launch(client(stream?));
        }
        Ok(())
    })
    .await
}

async fn client(stream: TcpStream) -> Result<()> {
    let mut lines = BufReader::new(&stream).lines().at_most(1024);
    let mut out = BufWriter::new(&stream);
    let mut list = Vec::new();
    let ended = loop {
        let line = match lines.next().await {
            Some(Ok(line)) => line,
            Some(Err(error)) => break Err(error),
            None => break Ok(()),
        };
        let answer = match line.split_once(' ') {
            Some(("add", word)) => {
                list.push(word.to_owned());
                format!("{} words\n", list.len())
            }
            _ => format!("{}\n", list.join(" ")),
        };
        out.write_all(answer).await?;
        out.flush().await?;
    };
    if let Err(error) = &ended
        && io::told(error).is_some()
    {
        cleanup(async {
            out.write_all("goodbye\n").await?;
            out.shutdown().await
        })
        .await?;
    }
    Ok(ended?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinfolk::spawn;

    #[kinfolk::test]
    async fn a_client_is_answered_and_hears_the_goodbye() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = spawn(serve(listener));
        let stream = TcpStream::connect(addr).await?;
        let mut lines = BufReader::new(&stream).lines();
        stream.write_all("add one\nadd two\nlist\n").await.0?;
        for wanted in ["1 words", "2 words", "one two"] {
            assert_eq!(lines.next().await.transpose()?.as_deref(), Some(wanted));
        }
        server.cancel("enough");
        assert_eq!(lines.next().await.transpose()?.as_deref(), Some("goodbye"));
        assert!(lines.next().await.is_none());
        assert!(server.outcome().await?.is_cancelled());
        Ok(())
    }
}
