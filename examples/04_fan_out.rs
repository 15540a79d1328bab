//! Many at once: so many downloads at a time and their results as they come, the
//! first of several mirrors, side by side with what they borrow, and whichever
//! comes first.

use std::time::Duration;

use kinfolk::{Arm, Error, Result, TaskSet, all, any, cleanup, scope, select, sleep};

const MS: Duration = Duration::from_millis(1);

#[kinfolk::main]
async fn main() -> Result<()> {
    println!("{} bytes", downloads().await?);
    println!("{}", first_mirror().await?);
    println!("{}", side_by_side().await?);
    println!("{} pieces of news, then silence", news().await?);
    Ok(())
}

/// Nine downloads, three at a time, each a task of its own.
#[rustfmt::skip]
async fn downloads() -> Result<u64> {
    scope(async |_| {
        let mut downloads = TaskSet::new().limit(3)?;
        for id in 1..=9 {
            downloads.spawn(download(id)).await?;        // waits while three are running
        }
        let mut bytes = 0;
        while let Some(done) = downloads.next().await? { // whichever is done next
            bytes += done?;                              // if one fails, the others are told
        }
        Ok(bytes)
    })
    .await
}

/// The first mirror that answers. The others are told, hang up, and are waited for.
async fn first_mirror() -> Result<String> {
    any(["eu", "us", "asia"].map(ask)).await
}

/// Two branches of this task, so they may borrow.
async fn side_by_side() -> Result<String> {
    let name = String::from("ada");
    let (greeting, length) = all((greet(&name), measure(&name))).await?;
    Ok(format!("{greeting} ({length})"))
}

/// Until there has been no news for a while.
async fn news() -> Result<u32> {
    let mut wire = Wire::default();
    loop {
        match select!(wire.news(), sleep(20 * MS)).await? {
            Arm::A(news) => println!("news: {news}"),
            Arm::B(()) => return Ok(wire.told),
        }
    }
}

async fn download(id: u64) -> Result<u64> {
    sleep((10 - id as u32) * MS).await?;
    Ok(id * 100)
}

async fn ask(mirror: &str) -> Result<String> {
    let answers = async {
        match mirror {
            "eu" => Err(Error::msg("eu is down")), // passed over
            "us" => Ok(sleep(3 * MS).await?),
            _ => Ok(sleep(Duration::from_secs(60)).await?),
        }
    };
    if let Err(error) = answers.await {
        if error.is_cancelled() {
            cleanup(sleep(MS)).await?; // says goodbye
            println!("{mirror} has hung up");
        }
        return Err(error);
    }
    Ok(format!("the page, from {mirror}"))
}

async fn greet(name: &str) -> Result<String> {
    sleep(2 * MS).await?;
    Ok(format!("hello, {name}"))
}

async fn measure(name: &str) -> Result<usize> {
    sleep(MS).await?;
    Ok(name.len())
}

/// Three pieces of news, then nothing.
#[derive(Default)]
struct Wire {
    told: u32,
}

impl Wire {
    async fn news(&mut self) -> Result<u32> {
        if self.told == 3 {
            kinfolk::park().await?;
        }
        sleep(2 * MS).await?;
        self.told += 1; // after the last point: a lost round takes nothing
        Ok(self.told)
    }
}

/// Each is stopped at each of its points in turn: nothing is left behind.
#[test]
fn a_fan_out_can_be_stopped_anywhere() {
    use kinfolk::testkit::cancel_everywhere;

    let went = [
        cancel_everywhere(downloads),
        cancel_everywhere(first_mirror),
        cancel_everywhere(side_by_side),
        cancel_everywhere(news),
    ];
    for went in went {
        assert_eq!(went.forced, 0, "every wait hears it");
    }
}
