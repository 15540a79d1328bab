//! Attempts: the fast mirror is asked and may fail, which stops nothing else. Only its own
//! `await` shows the failure, and the page comes from the origin then.

use std::time::Duration;

use kinfolk::{Error, Result, Scope, TaskSet, scope, sleep};

const MS: Duration = Duration::from_millis(1);

#[kinfolk::main]
async fn main() -> Result<()> {
    println!("{}", page("news", true).await?);
    println!("{}", page("news", false).await?);
    println!("{} of 6 links are broken", broken_links(0..6).await?);
    Ok(())
}

/// The page, from the mirror if that is up; meanwhile the visit is counted.
async fn page(name: &'static str, mirror_is_up: bool) -> Result<String> {
    scope(async |s| {
        let mirror = s.attempt(fetch("mirror", name, mirror_is_up));
        let visit = s.spawn(count_visit()); // its failure would be the page's
        let page = match mirror.await {
            Ok(page) => page,
            Err(error) if error.is_cancelled() => return Err(error),
            Err(_) => fetch("origin", name, true).await?,
        };
        visit.await?;
        Ok(page)
    })
    .await
}

async fn fetch(host: &'static str, name: &'static str, is_up: bool) -> Result<String> {
    sleep(5 * MS).await?;
    if !is_up {
        return Err(Error::msg(format!("{host} is down")));
    }
    Ok(format!("{name} from the {host}"))
}

async fn count_visit() -> Result<()> {
    sleep(20 * MS).await?;
    Ok(())
}

/// Each link is an attempt of a set: a broken one is a result, and the others are checked.
async fn broken_links(links: std::ops::Range<u32>) -> Result<u32> {
    let here = Scope::current().ok_or_else(|| Error::msg("call it inside a runtime"))?;
    let mut checks = TaskSet::within(&here).limit(2)?;
    for link in links {
        checks.attempt(check(link)).await?;
    }
    let mut broken = 0;
    while let Some(result) = checks.next().await? {
        broken += u32::from(result.is_err());
    }
    Ok(broken)
}

async fn check(link: u32) -> Result<()> {
    sleep(MS).await?;
    match link % 3 {
        0 => Err(Error::msg("404")),
        _ => Ok(()),
    }
}

#[kinfolk::test]
async fn a_mirror_that_is_down_costs_nothing_but_its_page() {
    assert_eq!(page("news", true).await.unwrap(), "news from the mirror");
    assert_eq!(page("news", false).await.unwrap(), "news from the origin");
    assert_eq!(broken_links(0..6).await.unwrap(), 2);
}

/// The page is stopped at each of its points in turn: nothing is left behind.
#[test]
fn a_page_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(|| page("news", false));
    assert_eq!(went.forced, 0, "every wait hears it");
}
