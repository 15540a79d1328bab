//! `kvlog [--salvage] [DIRECTORY] [ADDRESS]`: serves until Ctrl-C or SIGTERM.

use kinfolk::net::TcpListener;
use kinfolk::{Error, Result, scope};
use kvlog::{http, log, store};

const HELP: &str = "\
Usage: kvlog [--salvage] [DIRECTORY] [ADDRESS]

Serves the keys whose log lies in DIRECTORY (kvlog-data) at ADDRESS (127.0.0.1:7070),
until Ctrl-C or SIGTERM.

If a crash has torn the end of the log, the end is cut off: none of it was acknowledged.
If the log is damaged in any other way, kvlog says where, changes nothing and ends.

  --salvage  makes a log of the records that can be read, moves all other bytes into
             files beside the log (log.bad-OFFSET), says which, and serves. A key whose
             last change was among those bytes has an older value, or none.
  --help     prints this.
";

#[kinfolk::main]
async fn main() -> Result<()> {
    let (mut salvage, mut places) = (false, Vec::new());
    for arg in std::env::args().skip(1) {
        match &*arg {
            "--help" => {
                print!("{HELP}");
                return Ok(());
            }
            "--salvage" => salvage = true,
            option if option.starts_with('-') => {
                return Err(Error::msg(format!("there is no {option}\n{HELP}")));
            }
            _ => places.push(arg),
        }
    }
    let mut places = places.into_iter();
    let dir = places.next().unwrap_or("kvlog-data".into());
    let addr = places.next().unwrap_or("127.0.0.1:7070".into());

    if salvage {
        let dropped = log::salvage(dir.as_ref()).await?;
        for part in &dropped {
            eprintln!("kvlog: {part}");
        }
        eprintln!("kvlog: {} parts were taken out of the log", dropped.len());
    }
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
