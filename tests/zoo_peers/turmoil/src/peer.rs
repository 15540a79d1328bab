//! What turmoil offers: machines that take turns in random order, random latency, lost
//! messages, partitions, crashes, and files that are slow, fail and forget.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

pub(crate) use turmoil::net::{TcpListener, TcpStream, UdpSocket};

use crate::shared::{Body, Result, Run, SECOND, Two};

pub(crate) const ANYWHERE: &str = "0.0.0.0:80";
pub(crate) const SERVER: &str = "server:80";

/// Why `shutdown` of a stream is of no use.
pub(crate) const HALF_CLOSE: Option<&str> = None;

/// Turmoil has no such thing.
pub(crate) fn enable_buggify() {}

/// Turmoil has no such thing.
pub(crate) fn buggify() -> bool {
    false
}

fn builder(run: Run) -> turmoil::Builder {
    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(run.seed)
        .enable_random_order()
        .simulation_duration(60 * SECOND);
    builder.fs().io_latency();
    builder
}

/// What a machine runs: its errors go to any place.
async fn software(body: Body) -> turmoil::Result {
    body.await
        .map_err(|error| error as Box<dyn std::error::Error>)
}

/// Runs `body` on the one machine there is.
fn on_one_machine(builder: &turmoil::Builder, body: Body) -> Result {
    let mut sim = builder.build();
    sim.client("client", software(body));
    Ok(sim.run().map_err(|error| error.to_string())?)
}

pub(crate) fn alone(run: Run, body: Body) -> Result {
    on_one_machine(&builder(run), body)
}

/// As `alone`, with files as `setting` says.
pub(crate) fn with_files(
    run: Run,
    setting: impl FnOnce(&mut turmoil::FsConfig),
    body: Body,
) -> Result {
    let mut builder = builder(run);
    setting(builder.fs());
    on_one_machine(&builder, body)
}

pub(crate) fn two(run: Run, two: Two) -> Result {
    let mut sim = builder(run).fail_rate(two.loss).build();
    let server = RefCell::new(Some(two.server));
    sim.host("server", move || {
        let server = server.borrow_mut().take().expect("started once");
        software(server)
    });
    sim.client("client", software(two.client));
    Ok(sim.run().map_err(|error| error.to_string())?)
}

/// Runs `before`, cuts the power, starts the machine again and runs `after`. Writes that
/// were not synced are lost, torn at sectors of 512 bytes, or on the disk by chance.
pub(crate) fn power_cut(run: Run, before: Body, after: Body) -> Result {
    power_cut_with(run, |_| {}, before, after)
}

/// As `power_cut`, with files as `setting` says too.
pub(crate) fn power_cut_with(
    run: Run,
    setting: impl FnOnce(&mut turmoil::FsConfig),
    before: Body,
    after: Body,
) -> Result {
    let mut builder = builder(run);
    setting(builder.fs().block_size(512).sync_probability(0.2));
    let mut sim = builder.build();
    let lives = RefCell::new(vec![after, before]);
    let over = Rc::new(Cell::new(false));
    let told = over.clone();
    sim.host("server", move || {
        let life = lives.borrow_mut().pop().expect("started twice");
        let told = told.clone();
        async move {
            software(life).await?;
            told.set(true);
            std::future::pending().await
        }
    });
    for last in [false, true] {
        over.set(false);
        while !over.get() {
            sim.step().map_err(|error| error.to_string())?;
        }
        if !last {
            sim.crash("server");
            sim.bounce("server");
        }
    }
    Ok(())
}

/// How many tasks there are besides the one that asks.
pub(crate) fn other_tasks() -> usize {
    // The test itself is a local task, and not counted.
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

pub(crate) fn cut() {
    turmoil::partition("client", "server");
}

pub(crate) fn heal() {
    turmoil::repair("client", "server");
}

pub(crate) async fn send_to(
    socket: &UdpSocket,
    bytes: &[u8],
    to: impl turmoil::ToSocketAddrs,
) -> io::Result<()> {
    socket.send_to(bytes, to).await?;
    Ok(())
}
