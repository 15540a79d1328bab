//! Steps with branches: combinators over inner bodies.

use kinfolk_core::host::Contained;
use kinfolk_core::{all, all_settled, any, race, select, sleep};

use crate::program::Step;
use crate::types::drop_alone;

pub async fn step(step: &mut Step) -> kinfolk_core::Result<()> {
    let (first, second) = (step.inner(), step.inner());
    match step.pick("branches", 7) {
        0 => {
            for value in all(vec![first, second]).await? {
                drop_alone(value);
            }
        }
        1 => {
            let (a, b) = all((first, second)).await?;
            drop_alone(a);
            drop_alone(b);
        }
        2 => {
            for end in all_settled([first, second]).await {
                drop_alone(end);
            }
        }
        3 => {
            let late = Contained::new(step.value());
            let first = any([first, second]).late(|value| {
                late.call();
                drop(value);
            });
            let value = first.await?;
            step.dispose(value);
        }
        4 => {
            let late = Contained::new(step.value());
            let first = race([first, second, step.inner()]).late(|value| {
                late.call();
                drop(value);
            });
            let value = first.await?;
            step.dispose(value);
        }
        5 => drop(select!(first, sleep(step.millis(10)), second).await?),
        _ => {
            let (guarded, wait) = (step.rng.chance(0.5), step.millis(10));
            // Left over where the guard is false.
            let first = Contained::new(first);
            select! {
                value = first.into_inner(), if guarded => drop(value),
                value = second => step.dispose(value),
                () = sleep(wait) => {}
            }?;
        }
    }
    Ok(())
}
