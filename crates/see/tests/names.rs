//! Names that come from outside: whatever they are made of, a terminal or a page that shows
//! what the library prints obeys nothing in them.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use kinfolk_core::host::say::is_obeyed;
use kinfolk_core::{Error, ReasonKind, Scope, ignore_cancellation, park, sleep};
use kinfolk_see::WriteJson;
use kinfolk_sync::Mutex;
use kinfolk_testkit::{Sim, guarded};

const SECOND: Duration = Duration::from_secs(1);

/// What no form may print as it is.
fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "\u{1b}[2J",
        "\u{9b}31m",
        "\r\nkinfolk: all is well",
        "<script>alert(1)</script>",
        "\u{202e}gnp.exe",
        "a\u{200b}b\u{feff}",
        "\" Active, told 3 s ago",
        "\u{7}\u{8}\u{7f}\u{0}",
        "\u{1b}]8;;http://example.org\u{1b}\\link",
    ]
    .map(String::from)
    .into();
    names.push("\u{1b}[5m".repeat(1 << 18));
    names.push(
        (0..=0xffff)
            .filter_map(char::from_u32)
            .filter(|c| is_obeyed(*c))
            .collect(),
    );
    names
}

/// Everything that is printed of a tree in which every name and text is `name`.
fn printed(name: &str) -> Vec<(&'static str, String)> {
    let mut forms: Vec<(&'static str, String)> = Vec::new();
    let failures: Arc<StdMutex<Vec<String>>> = Arc::default();
    let forced: Arc<StdMutex<Vec<String>>> = Arc::default();
    let (heard, dropped) = (failures.clone(), forced.clone());
    let mut sim = Sim::builder(1)
        .on_failure(move |error: &Error| {
            let words = format!("{error}\n{error:?}\n{:?}", error.path());
            heard.lock().unwrap().push(words);
        })
        .on_forced(move |job| dropped.lock().unwrap().push(format!("{job}\n{job:?}")))
        .build();
    let root = sim.root();
    let text = name.to_string();
    // Two that wait for each other, at locks of that name.
    let locks = [0, 1].map(|_| Arc::new(Mutex::new(()).named(text.clone())));
    for n in 0..2 {
        let (one, other) = (locks[n].clone(), locks[1 - n].clone());
        root.task(text.clone()).launch(async move {
            let _one = one.lock().await?;
            sleep(SECOND).await?;
            let _other = other.lock().await?;
            Ok::<(), Error>(())
        });
    }
    // One that is shielded, one that awaits it, one that is told and stays.
    let stays = root.task(text.clone()).spawn(async {
        let _guard = ignore_cancellation().await?;
        sleep(9 * SECOND).await?;
        Ok::<(), Error>(())
    });
    let job = stays.job();
    root.task(text.clone())
        .launch(async move { job.join().await.map(|_| ()) });
    let in_scope = text.clone();
    let told = root.task(text.clone()).spawn(async move {
        Scope::named(in_scope)
            .run(async |_| {
                let _ = park().await;
                std::future::pending::<()>().await;
                Ok(())
            })
            .await
    });
    for _ in 0..5 {
        root.task(text.clone()).launch(park());
    }
    sim.settle();
    sim.advance(2 * SECOND);
    stays.cancel(text.clone());
    told.cancel(text.clone());
    sim.settle();
    sim.advance(SECOND);
    let tree = sim.snapshot();
    let cycles = tree.cycles();
    assert_eq!(cycles.len(), 1, "{tree}");
    let stuck = tree.stuck(Duration::ZERO);
    assert_eq!(stuck.jobs.len(), 2, "{stuck}");
    forms.push(("the tree", tree.to_string()));
    forms.push(("unfolded", tree.text().unfolded().to_string()));
    let coloured = tree.text().coloured(true).to_string();
    let codes = ["0", "1", "2", "31", "33", "36"].map(|code| format!("\u{1b}[{code}m"));
    let plain = codes
        .iter()
        .fold(coloured, |text, code| text.replace(code, ""));
    forms.push(("coloured", plain));
    forms.push(("Debug of the tree", format!("{tree:?}")));
    forms.push(("JSON", tree.to_json()));
    forms.push(("JSON of the tree", sim.tree().to_json()));
    forms.push(("stuck", stuck.to_string()));
    forms.push(("a cycle", cycles[0].to_string()));
    for node in tree.nodes() {
        forms.push(("a job", node.to_string()));
        forms.push(("Debug of a job", format!("{node:?}")));
        let others = node.waited_for_by.iter().map(ToString::to_string);
        let waits = node.waits_for.iter().map(ToString::to_string);
        forms.extend(others.chain(waits).map(|words| ("who waits", words)));
    }
    forms.extend(stuck.jobs.iter().map(|one| ("why", one.why.to_string())));
    forms.push((
        "handles",
        format!("{told:?}{:?}{:?}", told.job(), sim.root()),
    ));
    // Errors: of one that was cancelled, that timed out, that panicked, that failed.
    let late = text.clone();
    let reason = text.clone();
    let errors = sim.run(async move {
        let mut errors = String::new();
        let s = Scope::current().expect("a scope");
        let stopped = s.task(late.clone()).spawn(park());
        stopped.cancel(reason);
        let outcome = stopped.await;
        let _ = write!(errors, "{}", outcome.unwrap_err());
        let timed = Scope::named(late.clone()).timeout(SECOND).run(async |_| {
            park().await?;
            Ok(())
        });
        let _ = write!(errors, "{}", timed.await.unwrap_err());
        Ok::<_, Error>(errors)
    });
    forms.push(("errors", errors.expect("errors")));
    root.task(text.clone())
        .launch(async { Err::<(), _>(Error::msg("no")) });
    sim.settle();
    sim.tree().request_shutdown(ReasonKind::Shutdown);
    let report = sim.shutdown(SECOND);
    assert!(!report.is_clean());
    forms.push(("the shutdown report", report.to_string()));
    for words in failures
        .lock()
        .unwrap()
        .iter()
        .chain(&*forced.lock().unwrap())
    {
        forms.push(("hooks", words.clone()));
    }
    forms
}

/// see-2: nothing of a name acts in anything that is printed, and no print is a megabyte long
/// because a name is.
#[test]
fn see_2_hostile_names_do_nothing_anywhere() {
    guarded("names", |_| {
        for name in hostile() {
            for (form, text) in printed(&name) {
                let json = form.starts_with("JSON");
                let obeyed = |c: char| is_obeyed(c) && c != '\n';
                assert!(
                    !text.contains(obeyed),
                    "{form}: {:.300}",
                    text.escape_debug()
                );
                assert!(!text.contains("\nkinfolk: all"), "{form}: {text:.300}");
                assert!(!(json && text.contains('<')), "{form}");
                if name.starts_with('"') {
                    assert!(!text.contains("\"\" Active"), "{form}: {text:.300}");
                }
                if !json && !form.starts_with("Debug") && form != "handles" && form != "hooks" {
                    assert!(text.len() < 100_000, "{form} has {} bytes", text.len());
                }
            }
        }
    });
}
