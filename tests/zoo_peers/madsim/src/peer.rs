//! What madsim offers: ready tasks in random order, time that passes with each turn, random
//! latency, lost messages, clogged links, nodes that are killed and started again, and
//! `buggify`, with which a program asks whether it is to fail here.

use std::io;

use madsim::Config;
use madsim::net::NetSim;
use madsim::runtime::{Handle, Runtime};
pub(crate) use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::shared::{Body, Result, Run, SECOND, Two};

pub(crate) const ANYWHERE: &str = "0.0.0.0:80";
pub(crate) const SERVER: &str = "10.0.0.1:80";

/// Why `shutdown` of a stream is of no use.
pub(crate) const HALF_CLOSE: Option<&str> =
    Some("`shutdown` of a stream does nothing, so the corrected program hangs");

/// From here on `buggify` may say yes.
pub(crate) fn enable_buggify() {
    madsim::buggify::enable();
}

/// Whether an operation is to fail here.
pub(crate) fn buggify() -> bool {
    madsim::buggify::buggify_with_prob(0.1)
}

fn runtime(run: Run, loss: f64) -> Runtime {
    let mut config = Config::default();
    config.net.packet_loss_rate = loss;
    let mut runtime = Runtime::with_seed_and_config(run.seed, config);
    runtime.set_time_limit(60 * SECOND);
    runtime
}

pub(crate) fn alone(run: Run, body: Body) -> Result {
    let runtime = runtime(run, 0.0);
    let node = runtime.create_node().name("client").build();
    runtime.block_on(async move { node.spawn(body).await? })
}

pub(crate) fn two(run: Run, two: Two) -> Result {
    let runtime = runtime(run, two.loss);
    let node = |name: &str, ip: [u8; 4]| runtime.create_node().name(name).ip(ip.into()).build();
    let server = node("server", [10, 0, 0, 1]);
    let client = node("client", [10, 0, 0, 2]);
    runtime.block_on(async move {
        server.spawn(async { two.server.await.expect("the server goes on") });
        client.spawn(two.client).await?
    })
}

/// Runs `before`, kills the node, starts it again and runs `after`.
pub(crate) fn power_cut(run: Run, before: Body, after: Body) -> Result {
    let runtime = runtime(run, 0.0);
    let node = runtime.create_node().name("server").build();
    runtime.block_on(async move {
        node.spawn(before).await??;
        let handle = Handle::current();
        handle.kill(node.id());
        handle.restart(node.id());
        let node = handle.get_node(node.id()).expect("a node");
        node.spawn(after).await?
    })
}

/// How many tasks there are besides the one that asks.
pub(crate) fn other_tasks() -> usize {
    Handle::current().metrics().num_tasks() - 1
}

/// Clogs or unclogs the links between the two nodes.
fn links(change: impl Fn(&NetSim, madsim::task::NodeId, madsim::task::NodeId)) {
    let handle = Handle::current();
    let id = |name| handle.get_node(name).expect("a node").id();
    let (server, client) = (id("server"), id("client"));
    let net = NetSim::current();
    change(&net, server, client);
    change(&net, client, server);
}

pub(crate) fn cut() {
    links(|net, from, to| net.clog_link(from, to));
}

pub(crate) fn heal() {
    links(|net, from, to| net.unclog_link(from, to));
}

/// The arguments of `send_to` stand in another order than those of tokio.
pub(crate) async fn send_to(
    socket: &UdpSocket,
    bytes: &[u8],
    to: impl tokio::net::ToSocketAddrs,
) -> io::Result<()> {
    socket.send_to(to, bytes).await
}
