//! A chat room by broadcast: everybody hears every line, and a guest who is too slow is
//! told how many lines were missed.

use std::time::Duration;

use kinfolk::sync::broadcast::{self, Receiver, RecvError};
use kinfolk::{Result, scope, sleep};

const MS: Duration = Duration::from_millis(1);

#[kinfolk::main]
async fn main() -> Result<()> {
    for line in evening().await? {
        println!("{line}");
    }
    Ok(())
}

/// Ten lines are said to a quick guest and to a slow one: what they wrote down.
async fn evening() -> Result<Vec<String>> {
    scope(async |s| {
        let (room, door) = broadcast::channel(4); // the last four lines are kept
        let quick = s.spawn(listen("quick", room.subscribe(), MS));
        let slow = s.spawn(listen("slow", door, 50 * MS));
        for n in 1..=10 {
            sleep(5 * MS).await?;
            room.send(format!("line {n}"))?;
        }
        drop(room); // the room is closed: the guests hear what is left, and go
        let mut heard = quick.await?;
        heard.extend(slow.await?);
        Ok(heard)
    })
    .await
}

/// Writes down what is said, with a pause after each line.
async fn listen(guest: &str, mut room: Receiver<String>, pause: Duration) -> Result<Vec<String>> {
    let mut heard = Vec::new();
    loop {
        match room.recv().await {
            Ok(Some(line)) => heard.push(format!("{guest} heard {line}")),
            Ok(None) => return Ok(heard),
            Err(RecvError::Lagged(n)) => heard.push(format!("{guest} missed {n}")),
            Err(told) => return Err(told.into()),
        }
        sleep(pause).await?;
    }
}

#[kinfolk::test]
async fn the_slow_guest_is_told() {
    let heard = evening().await.unwrap();
    let count = |word: &str| heard.iter().filter(|line| line.starts_with(word)).count();
    assert_eq!(count("quick heard"), 10);
    assert!(count("slow missed") > 0);
}
