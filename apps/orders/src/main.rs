//! `orders`: runs the three servers through the script and under load, one after the other, and
//! prints two tables. Its other roles, with arguments, are those that it starts itself.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use orders::drill::{self, Plan, Table};
use orders::script::{self, ScriptTable};
use orders::shop::Shop;
use orders::tally::Tally;
use orders::{BoxError, Kind, Limits, axum_alone, by_the_guides, load, with_kinfolk};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// How long a server is waited for that may never do what the script asks for.
const PATIENCE: Duration = Duration::from_millis(2500);

/// What a role returns.
type Ended = Result<(), BoxError>;

fn main() -> Result<ExitCode, BoxError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = runtime()?;
    match args[..] {
        [] => runtime.block_on(all())?,
        ["server", kind, folder, at, bank, grace, undo] => {
            let kind = Kind::of(kind).ok_or("one of the three")?;
            let limits = Limits {
                bank: Duration::from_millis(bank.parse()?),
                grace: Duration::from_millis(grace.parse()?),
                undo: Duration::from_millis(undo.parse()?),
            };
            return serve(&runtime, kind, Path::new(folder), at.parse()?, limits);
        }
        ["load", server, clients, seed] => {
            let load = load::run(server.parse()?, clients.parse()?, seed.parse()?);
            runtime.block_on(load)?;
            // Its thread may wait in standard input.
            runtime.shutdown_background();
        }
        _ => return Err("orders takes no arguments".into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<Runtime, BoxError> {
    let mut builder = Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

/// Runs all three, and prints both tables.
async fn all() -> Ended {
    let exe = std::env::current_exe()?;
    let mut scripted = Vec::new();
    for kind in Kind::ALL {
        scripted.push(script::play(&exe, kind, PATIENCE).await?);
    }
    println!("{}", ScriptTable(scripted));
    let seed = match std::env::var("ORDERS_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => SystemTime::UNIX_EPOCH.elapsed()?.as_micros() as u64,
    };
    println!("ORDERS_SEED={seed}");
    let plan = Plan {
        clients: 32,
        before: Duration::from_millis(1500),
        seed,
    };
    let mut columns = Vec::new();
    for kind in Kind::ALL {
        columns.push(drill::run(&exe, kind, plan).await?);
    }
    print!("{}", Table(columns));
    Ok(())
}

/// One server: says where it listens, and at its end what it has counted.
fn serve(
    runtime: &Runtime,
    kind: Kind,
    folder: &Path,
    bank: SocketAddr,
    limits: Limits,
) -> Result<ExitCode, BoxError> {
    // It does not outlive the drill, however that ends.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    let shop = runtime.block_on(Shop::open(folder, bank))?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let tally = Tally::default();
    println!("{}", listener.local_addr()?);
    let (theirs, counts) = (shop.clone(), tally.clone());
    let code = match kind {
        Kind::AxumAlone => {
            runtime.block_on(axum_alone::serve(listener, theirs, counts, limits))?;
            ExitCode::SUCCESS
        }
        Kind::ByTheGuides => {
            runtime.block_on(by_the_guides::serve(listener, theirs, counts, limits))?;
            ExitCode::SUCCESS
        }
        Kind::WithKinfolk => runtime.block_on(async {
            let root = with_kinfolk::root(limits)?;
            let main = with_kinfolk::serve(root.clone(), listener, theirs, counts, limits);
            Ok::<_, BoxError>(root.run_main(main).await)
        })?,
    };
    println!("{tally}");
    Ok(code)
}
