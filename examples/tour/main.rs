//! A tour of Kinfolk in under ten seconds: a family is built, fails, times
//! out, is cancelled, is dropped half-way, is slow to stop, with the living tree
//! printed at each step; then one small server is written twice, by hand and with Kinfolk, and
//! its clients are cut off at random; a server is stopped while its connections
//! wait, on sockets and on a network in memory; and a download is stopped at each of
//! its points in turn.

mod by_hand;
mod everywhere;
mod family;
mod server;
mod wire;
mod with_kinfolk;

use kinfolk::tokio::Root;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> kinfolk::Result<()> {
    let root = Root::builder().on_failure(Box::new(|_| {})).build();
    root.run(family::tour(root.clone())).await?;
    root.shutdown().await?;

    println!("\n== The reason to care");
    println!("One server, written twice: clients send records, the server batches them into");
    println!("a store and kicks clients at random. Then it is asked to stop.\n");
    let by_hand = wire::measure(by_hand::serve).await;
    let (with_kinfolk, report) = with_kinfolk::measure().await?;
    println!(
        "{:<28}{:>14}{:>12}{:>10}",
        "", "items lost", "bytes lost", "orphans"
    );
    println!("{:<28}{by_hand}", "select! + JoinSet + token");
    println!("{:<28}{with_kinfolk}", "kinfolk");
    println!("\nAnd who was in the way of stopping, one straggler being planted:\n\n{report}");

    println!("\n== Sockets");
    server::on_this_machine()?;
    let mut took = std::time::Duration::ZERO;
    for seed in 0..100 {
        took += server::in_memory(seed)?;
    }
    println!(
        "The same server on a network in memory, where a seed says what is short, late and in\n\
         which order: 100 seeds, {:.1} s of virtual time, and the books are right each time.",
        took.as_secs_f64()
    );

    let went = everywhere::measure();
    println!("\n== Stopped everywhere");
    println!(
        "A download (the first of two mirrors, parts two at a time, undone when told) was\n\
         stopped at each of its {} points by a cancel, by a deadline and by a failure beside\n\
         it: {} runs, nothing left behind, nothing half done.",
        went.points, went.runs
    );
    Ok(())
}
