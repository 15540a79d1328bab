//! Adds up the numbers that are typed, a line each. Ctrl-C or Ctrl-D ends it, and the sum of
//! what was typed is said either way.

use kinfolk::{Result, io};

#[kinfolk::main]
async fn main() -> Result<()> {
    let mut sum = 0;
    let ended = add_up(&mut sum).await;
    println!("{sum}");
    ended
}

/// Adds the numbers of standard input to `sum`, until it ends or the job is told to stop.
async fn add_up(sum: &mut i64) -> Result<()> {
    let mut lines = io::stdin().lines();
    while let Some(line) = lines.next().await {
        match line?.trim().parse::<i64>() {
            Ok(number) => *sum += number,
            Err(error) => println!("that is no number: {error}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinfolk::sleep;
    use kinfolk::testkit::Sim;
    use std::time::Duration;

    #[test]
    fn what_was_typed_counts_though_it_is_stopped() {
        let mut sim = Sim::seeded(1);
        let keyboard = sim.io();
        let sum = sim.run(async move {
            let mut sum = 0;
            keyboard.type_in("1\nnone\n41\n7");
            let second = Duration::from_secs(1);
            let stopped = kinfolk::timeout(second, add_up(&mut sum)).await;
            assert!(stopped.is_err(), "the last line was not complete");
            sleep(second).await?;
            keyboard.end_of_input();
            assert_eq!(io::stdin().read_line().await?.as_deref(), Some("7"));
            Ok::<_, kinfolk::Error>(sum)
        });
        assert_eq!(sum.expect("a sum"), 42);
    }
}
