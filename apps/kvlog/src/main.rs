//! `kvlog [DIRECTORY] [ADDRESS]`: serves until Ctrl-C or SIGTERM.

use kinfolk::net::TcpListener;
use kinfolk::{Result, scope};
use kvlog::{http, store};

#[kinfolk::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or("kvlog-data".into());
    let addr = args.next().unwrap_or("127.0.0.1:7070".into());

    let (store, committer) = store::open(dir.as_ref()).await?;
    let listener = TcpListener::bind(addr.as_str()).await?;
    println!("listening on {}", listener.local_addr()?);

    // Told to stop, `serve` returns when its last connection has ended. Then the
    // last `Store` is gone, and with it the committer; the scope waits for both.
    scope(async |s| {
        let committer = s.task("committer").spawn_atomic(committer.run());
        committer.into_job();
        http::serve(listener, store).await
    })
    .await
}
