//! `select!` with patterns, guards and handlers.

use std::time::Duration;

use kinfolk_core::{
    Arm, Error, ErrorKind, Result, cleanup, launch, park, select, sleep, spawn, timeout,
};
use kinfolk_testkit::{Lab, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn after<T>(millis: u32, value: T) -> Result<T> {
    sleep(millis * MS).await?;
    Ok(value)
}

/// handle-7: a pattern may bind with `mut`, alone or right inside a variant.
pub async fn handle_7_patterns_may_bind_with_mut(_: Lab) {
    let grow = async |which: u32| -> Result<String> {
        select! {
            mut whole = after(which, String::from("whole")) => {
                whole.push('!');
                whole
            }
            Some(mut part) = after(2, Some(String::from("part"))), if which > 1 => {
                part.push('?');
                part
            }
            Err(mut error) = after(9, Err::<(), _>(String::new())), if which == 0 => {
                error.push('.');
                error
            },
        }
    };
    assert_eq!(grow(1).await.unwrap(), "whole!");
    assert_eq!(grow(3).await.unwrap(), "part?");
}

/// handle-7: the handler of the first arm that ends is the value; the others are told.
pub async fn handle_7_the_first_arm_is_handled(lab: Lab) {
    let tally = Tally::new();
    let guard = tally.guard();
    let mut seen = Vec::new();
    let value = select! {
        slow = async {
            let _guard = guard;
            after(3_600_000, 1).await
        } => slow,
        (left, right) = after(2, (3, 4)) => {
            seen.push(left);
            left + right
        }
        _ = sleep(HOUR) => 0,
    };
    assert_eq!((value.unwrap(), seen, lab.elapsed()), (7, vec![3], 2 * MS));
    assert_eq!(tally.drops(), 1);
}

/// handle-7: handlers run in the body around it: they await, break and return, and use what
/// the futures have borrowed.
pub async fn handle_7_handlers_are_part_of_the_body(lab: Lab) {
    struct Feed(Vec<u32>);
    impl Feed {
        async fn next(&mut self) -> Result<Option<u32>> {
            sleep(MS).await?;
            Ok(self.0.pop())
        }
    }
    async fn sum(feed: &mut Feed) -> Result<u32> {
        let mut sum = 0;
        loop {
            select! {
                Some(item) = feed.next() => {
                    sleep(MS).await?;
                    if item == 9 {
                        return Ok(sum);
                    }
                    sum += item + feed.next().await?.unwrap_or_default();
                }
                () = sleep(10 * MS) => break,
            }?;
        }
        Ok(sum + 1000)
    }
    assert_eq!(sum(&mut Feed(vec![9, 4, 3, 2, 1])).await.unwrap(), 10);
    // The feed has ended: its arm is over, and the pause decides.
    assert_eq!(sum(&mut Feed(vec![2, 1])).await.unwrap(), 1003);
    assert_eq!(lab.elapsed(), 8 * MS + 3 * MS + 10 * MS);
}

/// handle-7: a guard that is false makes no future; a value that does not match is dropped and
/// the others go on; if no arm is left there is `else`, or an error.
pub async fn handle_7_guards_and_patterns(lab: Lab) {
    let mut made = 0;
    for open in [true, false] {
        let first = select! {
            n = { made += 1; after(1, 1) }, if open => n,
            n = after(2, 2) => n,
        };
        assert_eq!(first.unwrap(), if open { 1 } else { 2 });
    }
    assert_eq!((made, lab.elapsed()), (1, 3 * MS));
    let tally = Tally::new();
    let kept = tally.guard();
    let second = select! {
        Some(0) = after(1, Some(5)) => "zero",
        Err(_) = after(1, Ok::<_, Error>(Some(kept))) => "an error as a value",
        x @ 1..=9 = after(2, 4) => if x == 4 { "four" } else { "other" },
    };
    assert_eq!((second.unwrap(), tally.drops()), ("four", 1));
    let nothing = |open: bool| async move {
        select! {
            Some(n) = after(1, None::<u32>) => n,
            n = after(1, 2), if open => n,
            else => 9,
        }
    };
    assert_eq!(nothing(false).await.unwrap(), 9);
    assert_eq!(nothing(true).await.unwrap(), 2);
    let error = select! {
        Some(n) = after(1, None::<u32>) => n,
        n = after(1, 2), if lab.seed() == u64::MAX => n,
    };
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.to_string().contains("select_handlers.rs"), "{error}");
}

/// handle-7: an arm that fails first fails the whole, whatever its pattern; a failure beside a
/// value is reported, one beside a value that did not match is the answer.
pub async fn handle_7_a_failing_arm_fails_the_whole(lab: Lab) {
    let error = select! {
        1 = async { sleep(MS).await?; Err::<u32, _>(Error::msg("bad")) } => 1,
        n = after(3_600_000, 2) => n,
    };
    assert_eq!(error.unwrap_err().to_string(), "bad");
    let error = select! {
        Some(()) = after(1, None) => 1,
        () = async { sleep(2 * MS).await?; Err(Error::msg("later")) } => 2,
    };
    assert_eq!(error.unwrap_err().to_string(), "later");
    assert!(lab.take_failures().is_empty());
    let won = select! {
        n = after(1, 1) => n,
        () = async { let _ = park().await; Err(Error::msg("a loser's")) } => 2,
    };
    assert_eq!(won.unwrap(), 1);
    assert_eq!(lab.take_failures().len(), 1);
}

/// handle-7: an enclosing cancel is no arm's win, and no `else`; dropped half-way it leaves
/// nothing.
pub async fn handle_7_a_select_with_handlers_that_is_told(lab: Lab) {
    let task = spawn(async {
        let told = select! {
            () = async { park().await?; Ok::<_, Error>(()) } => 1,
            Some(n) = async { cleanup(sleep(MS)).await?; Ok::<_, Error>(None::<u32>) } => n,
            else => 3,
        };
        assert!(told.as_ref().unwrap_err().is_cancelled(), "{told:?}");
        told
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    let tally = Tally::new();
    let guard = tally.guard();
    let late = timeout(MS, async {
        select! {
            n = async {
                launch(async move {
                    let _guard = guard;
                    park().await.map(drop)
                });
                std::future::pending::<Result<u32>>().await
            } => n,
            n = after(3_600_000, 2) => n,
        }
    });
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(tally.drops(), 1);
    assert!(lab.take_failures().is_empty());
}

/// handle-7: eight arms, with and without blocks and commas; and futures alone, as before.
pub async fn handle_7_eight_arms_with_handlers(_: Lab) {
    for winner in 0..8_u32 {
        let wait = |arm: u32| if arm == winner { 0 } else { 3_600_000 };
        let name = select! {
            0 = after(wait(0), 0) => 'a',
            1 = after(wait(1), 1) => { 'b' }
            2 = after(wait(2), 2) => { 'c' },
            3 = after(wait(3), 3), if true => 'd',
            4 = after(wait(4), 4), if winner > 3 => { 'e' }
            5 = after(wait(5), 5), if winner != 3 => { 'f' },
            6 | 7 = after(wait(6), 6) => 'g',
            _ = after(wait(7), 7) => 'h'
        };
        assert_eq!(name.unwrap(), (b'a' + winner as u8) as char);
    }
    let arm = select!(after(3_600_000, 'a'), async { after(1, 'b').await }).await;
    assert_eq!(arm.unwrap(), Arm::B('b'));
}
