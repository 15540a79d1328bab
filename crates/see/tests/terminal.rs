//! Colours on a terminal. A test of its own, since it changes the variables of the process.

use std::fs::File;
use std::io::IsTerminal;

use kinfolk_core::park;
use kinfolk_testkit::Sim;

/// see-2: a terminal gets colours, unless `NO_COLOR` has a value or `TERM` is `dumb`.
#[test]
fn see_2_colours_on_a_terminal() {
    let Ok(terminal) = File::open("/dev/ptmx") else {
        println!("NOT RUN: there are no terminals here");
        return;
    };
    assert!(terminal.is_terminal());
    let mut sim = Sim::seeded(1);
    let task = sim.root().task("one").launch(park());
    sim.settle();
    let tree = sim.snapshot();
    for (no_color, term, coloured) in [
        (None, Some("xterm"), true),
        (None, None, true),
        (Some(""), Some("xterm"), true),
        (Some("1"), Some("xterm"), false),
        (Some("0"), Some("xterm"), false),
        (None, Some("dumb"), false),
    ] {
        for (name, value) in [("NO_COLOR", no_color), ("TERM", term)] {
            // SAFETY: the only test of this process, and no other thread of it reads or
            // writes variables meanwhile.
            unsafe {
                match value {
                    Some(value) => std::env::set_var(name, value),
                    None => std::env::remove_var(name),
                }
            }
        }
        let text = tree.text().for_terminal(&terminal).to_string();
        assert_eq!(text.contains('\u{1b}'), coloured, "{no_color:?} {term:?}");
        // Asked for by itself it is what was asked for.
        assert!(tree.text().coloured(true).to_string().contains('\u{1b}'));
        assert!(!tree.to_string().contains('\u{1b}'));
    }
    task.cancel("enough");
    sim.settle();
    sim.finish();
}
