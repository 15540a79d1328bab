//! A page made of two loads: one scope, one deadline, nothing left behind.

use kinfolk::{Scope, cleanup};
use std::time::Duration;

#[rustfmt::skip]
#[kinfolk::main]
async fn main() -> kinfolk::Result<()> {
    println!("{}", page().await?);
    Ok(())
}

#[rustfmt::skip]
async fn page() -> kinfolk::Result<String> {
    Scope::named("page")
        .timeout(Duration::from_secs(2))
        .run(async |s| {
            let user = s.spawn(load_user(7));            // Task<User>: dropping it would cancel it
            let feed = s.spawn(load_feed(7));            // if one fails, the other is cancelled
            s.launch(warm_cache());                      // waited for, like everything else
            Ok(render(user.await?, feed.await?))
        })
        .await                                            // nothing started in here is still running
}

#[rustfmt::skip]
async fn load_user(id: u64) -> kinfolk::Result<User> {
    let mut conn = pool().get().await?;                  // a cancellation point
    let r = conn.query(id).await;                         // another: Err(Cancelled) when told
    if r.is_err() { cleanup(conn.reset()).await?; }       // awaiting works again in here
    Ok(r?)
}

// What the page needs, in miniature.

struct User {
    name: String,
}

struct Pool;
struct Conn;

fn pool() -> Pool {
    Pool
}

impl Pool {
    async fn get(&self) -> Result<Conn, kinfolk::Cancelled> {
        kinfolk::sleep(Duration::from_millis(1)).await?;
        Ok(Conn)
    }
}

impl Conn {
    async fn query(&mut self, id: u64) -> Result<User, kinfolk::Cancelled> {
        kinfolk::sleep(Duration::from_millis(5)).await?;
        Ok(User {
            name: format!("user {id}"),
        })
    }

    async fn reset(&mut self) -> kinfolk::Result<()> {
        kinfolk::sleep(Duration::from_millis(1)).await?;
        Ok(())
    }
}

async fn load_feed(id: u64) -> kinfolk::Result<Vec<String>> {
    kinfolk::sleep(Duration::from_millis(3)).await?;
    Ok(vec![format!("news for {id}")])
}

async fn warm_cache() -> kinfolk::Result<()> {
    kinfolk::sleep(Duration::from_millis(2)).await?;
    Ok(())
}

fn render(user: User, feed: Vec<String>) -> String {
    format!("{}: {}", user.name, feed.join(", "))
}

/// Stopped at each of its points in turn, it leaves nothing behind.
#[test]
fn a_page_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(page);
    assert_eq!(went.forced, 0, "every wait hears it");
}
