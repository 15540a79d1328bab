//! A parallel map: a task for each picture, four at once, and the thumbnails in the order
//! of the pictures. The first picture that cannot be read cancels the rest.

use std::time::Duration;

use kinfolk::{Error, Result, TaskSet, sleep};

const MS: Duration = Duration::from_millis(1);

#[kinfolk::main]
async fn main() -> Result<()> {
    let thumbnails = TaskSet::map(1..=9, 4, shrink).await?;
    println!("{}", thumbnails.join(" "));
    let error = TaskSet::map([3, 0, 5], 4, shrink).await.unwrap_err();
    println!("none: {error}");
    Ok(())
}

/// The later the picture, the sooner it is done.
async fn shrink(picture: u32) -> Result<String> {
    if picture == 0 {
        return Err(Error::msg("picture 0 cannot be read"));
    }
    sleep((10 - picture) * MS).await?;
    Ok(format!("{picture}.small"))
}

#[kinfolk::test]
async fn values_come_in_the_order_of_the_items() {
    let thumbnails = TaskSet::map(1..=3, 2, shrink).await.unwrap();
    assert_eq!(thumbnails, ["1.small", "2.small", "3.small"]);
    let error = TaskSet::map([3, 0, 5], 4, shrink).await.unwrap_err();
    assert_eq!(error.to_string(), "picture 0 cannot be read");
}

/// The map is stopped at each of its points in turn: nothing is left behind.
#[test]
fn a_map_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(|| TaskSet::map(1..=5, 2, shrink));
    assert_eq!(went.forced, 0, "every wait hears it");
}
