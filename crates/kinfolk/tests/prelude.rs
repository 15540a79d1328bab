//! The prelude is the first circle of names: few, and those that the crate's page
//! says are for every day.

use std::collections::BTreeSet;

const SOURCE: &str = include_str!("../src/lib.rs");

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).expect(from);
    rest.split_once(to).expect(to).0
}

#[test]
fn the_prelude_is_the_first_circle_and_has_eight_names_at_most() {
    let names = between(SOURCE, "pub mod prelude {", ";");
    let prelude: BTreeSet<&str> = between(names, "{", "}")
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    assert!(prelude.len() <= 8, "{prelude:?}");

    // The links of the first circle, methods of its names left out.
    let circle: BTreeSet<&str> = between(SOURCE, "in the [`prelude`].", "And with the name")
        .split("[`")
        .skip(1)
        .filter_map(|rest| rest.split_once("`]"))
        .map(|(name, _)| name)
        .filter(|name| !name.contains("::"))
        .collect();
    assert_eq!(prelude, circle);
}

/// One family written with nothing but the prelude.
#[cfg(feature = "testkit")]
#[kinfolk::test]
async fn the_first_circle_is_enough_for_a_program() -> kinfolk::Result<()> {
    use kinfolk::prelude::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    async fn sum(s: Scope) -> kinfolk::Result<u32> {
        let parsed = s.spawn(async { "20".parse::<u32>() });
        let slow = s.spawn(async {
            if let Err(told) = sleep(50 * MS).await {
                cleanup(sleep(MS)).await?;
                return Err(Error::from(told));
            }
            Ok(22)
        });
        let now = std::future::ready(Err::<u32, _>("not a number")).or_cancel();
        assert_eq!(
            now.await?.or_fail().unwrap_err().to_string(),
            "not a number"
        );
        Ok(parsed.await? + slow.await?)
    }
    assert_eq!(scope(sum).await?, 42);
    let late = timeout(20 * MS, scope(sum)).await.unwrap_err();
    assert_eq!(late.kind(), kinfolk::ErrorKind::TimedOut);
    Ok(())
}
