//! Work that keeps a processor busy: in steps with a point between them on the pool, as a
//! task for each piece in parallel, and in `blocking` where the code cannot be cut up.

use std::time::Duration;

use kinfolk::{Result, TaskSet, blocking, checkpoint, timeout};

#[kinfolk::main]
async fn main() -> Result<()> {
    println!("{} primes below 30,000", primes_below(30_000).await?);
    println!("{} by another way", count_in_blocking(30_000).await?);
    let soon = timeout(Duration::from_millis(50), count_in_steps(0..u32::MAX));
    match soon.or_none().await? {
        Some(count) => println!("{count} in all"),
        None => println!("too many to count in 50 ms"),
    }
    Ok(())
}

/// One task for each thousand numbers: the workers share them out.
async fn primes_below(end: u32) -> Result<u32> {
    let pieces = (0..end)
        .step_by(1000)
        .map(move |from| from..end.min(from + 1000));
    let counts = TaskSet::map(pieces, 8, count_in_steps).await?;
    Ok(counts.into_iter().sum())
}

/// A point after each hundred numbers: it can be stopped there, and lets others go on.
async fn count_in_steps(numbers: std::ops::Range<u32>) -> Result<u32> {
    let mut count = 0;
    for number in numbers {
        if number % 100 == 0 {
            checkpoint().await?;
        }
        count += u32::from(is_prime(number));
    }
    Ok(count)
}

/// On a thread of its own, which asks now and then if it is still wanted.
async fn count_in_blocking(end: u32) -> Result<u32> {
    blocking(move |call| {
        let mut count = 0;
        for number in 0..end {
            if number % 1000 == 0 && call.is_cancelled() {
                break;
            }
            count += u32::from(is_prime(number));
        }
        count
    })
    .await
}

fn is_prime(number: u32) -> bool {
    number > 1
        && (2..)
            .take_while(|n| n * n <= number)
            .all(|n| !number.is_multiple_of(n))
}

#[kinfolk::test]
async fn each_way_counts_the_same() {
    assert_eq!(primes_below(3000).await.unwrap(), 430);
    assert_eq!(count_in_steps(0..3000).await.unwrap(), 430);
    assert_eq!(count_in_blocking(3000).await.unwrap(), 430);
}

/// The count is stopped at each of its points in turn: nothing is left behind.
#[test]
fn a_count_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(|| primes_below(3000));
    assert_eq!(went.forced, 0, "every wait hears it");
}
