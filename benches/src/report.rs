//! What is printed, written as JSON lines, and put into `BENCHMARKS.md`.

use std::fmt::Write;

use crate::contestant::{Bar, Unit};
use crate::measure::{Row, Table};

const BEGIN: &str = "<!-- generated: begin -->";
const END: &str = "<!-- generated: end -->";

/// Three digits are all a number here can carry.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size < 10.0 {
        format!("{value:.2}")
    } else if size < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn bar_words(bar: Bar, unit: Unit) -> String {
    let unit = unit.short();
    match bar {
        Bar::AtMost(most) => format!("≤ {most} {unit}"),
        Bar::OfBest(share) => format!("≤ {share} of the best peer"),
        Bar::Of(peer, share) => format!("≤ {share} of {peer}"),
        Bar::Over(peer, more) => format!("≤ {peer} + {more} {unit}"),
    }
}

fn target_words(table: &Table, row: &Row) -> String {
    let bars = table.bars(row);
    let words = bars.iter().map(|bar| bar_words(*bar, table.bench.unit));
    words.collect::<Vec<_>>().join(", ")
}

fn met_word(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "",
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The cells of one row, in the order of `HEAD`.
fn cells(table: &Table, row: &Row) -> [String; 8] {
    [
        row.contestant.to_string(),
        row.kind.word().to_string(),
        number(row.min()),
        number(row.median()),
        percent(row.spread()),
        table.ratio(row).map(number).unwrap_or_default(),
        target_words(table, row),
        met_word(table.met(row)).to_string(),
    ]
}

const HEAD: [&str; 8] = [
    "contestant",
    "kind",
    "min",
    "median",
    "spread",
    "of best peer",
    "target",
    "met",
];

fn disturbed(table: &Table) -> Option<String> {
    table.is_rough().then(|| {
        let share = percent(table.others);
        format!("Rough: others used {share} of the machine meanwhile.")
    })
}

/// A bench for the terminal.
pub fn plain(table: &Table) -> String {
    let bench = &table.bench;
    let mut lines = vec![HEAD.map(str::to_string)];
    lines.extend(table.rows.iter().map(|row| cells(table, row)));
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = format!(
        "{} ({} per {})\n",
        bench.name,
        bench.unit.short(),
        bench.per
    );
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            // Words to the left, numbers to the right.
            let width = widths[column];
            let _ = match column {
                2..=5 => write!(text, "  {cell:>width$}"),
                _ => write!(text, "  {cell:<width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if let Some(warning) = disturbed(table) {
        let _ = writeln!(text, "  WARNING: {warning}");
    }
    text
}

/// A bench for `BENCHMARKS.md`.
pub fn markdown(table: &Table) -> String {
    let bench = &table.bench;
    let mut text = format!(
        "### {}\n\n{} In {} per {}.\n\n",
        bench.name,
        bench.what,
        bench.unit.short(),
        bench.per
    );
    let _ = writeln!(text, "| {} |", HEAD.join(" | "));
    text.push_str("|---|---|--:|--:|--:|--:|---|---|\n");
    for row in &table.rows {
        let _ = writeln!(text, "| {} |", cells(table, row).join(" | "));
    }
    if let Some(warning) = disturbed(table) {
        let _ = writeln!(text, "\n{warning}");
    }
    text
}

/// A bench as JSON lines, one for each contestant.
pub fn json(table: &Table) -> String {
    let bench = &table.bench;
    let unit = match bench.unit {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "bytes",
    };
    let mut text = String::new();
    for row in &table.rows {
        let target = target_words(table, row);
        let target = (!target.is_empty()).then(|| json_string(&target));
        let _ = writeln!(
            text,
            "{{\"bench\": {}, \"contestant\": {}, \"kind\": {}, \"median_{unit}\": {:.3}, \
             \"min_{unit}\": {:.3}, \"per\": {}, \"ratio_to_best_peer\": {}, \"target\": {}, \
             \"met\": {}, \"others\": {:.3}}}",
            json_string(bench.name),
            json_string(row.contestant),
            json_string(row.kind.word()),
            row.median(),
            row.min(),
            json_string(bench.per),
            or_null(table.ratio(row).map(|ratio| format!("{ratio:.3}"))),
            or_null(target),
            or_null(table.met(row).map(|met| met.to_string())),
            table.others,
        );
    }
    text
}

fn or_null(value: Option<String>) -> String {
    value.unwrap_or_else(|| "null".to_string())
}

fn json_string(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `document` with what stands between its markers replaced; none without the
/// markers.
pub fn regenerate(document: &str, generated: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!(
        "{before}{BEGIN}\n\n{}\n\n{END}{after}",
        generated.trim()
    ))
}

/// `document` with this one of its tables replaced, and `note` below it; a table that it has
/// not had yet comes last. None without the markers.
pub fn replace(document: &str, table: &Table, note: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (generated, after) = rest.split_once(END)?;
    let new = format!("{}\n{note}\n", markdown(table));
    let heading = format!("### {}\n", table.bench.name);
    let generated = match generated.split_once(&heading) {
        None => format!("{}\n\n{new}\n", generated.trim_end()),
        Some((tables, old)) => match old.find("\n### ") {
            Some(end) => format!("{tables}{new}{}", &old[end..]),
            None => format!("{tables}{new}\n"),
        },
    };
    Some(format!("{before}{BEGIN}{generated}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::{Bench, Kind, Target};
    use crate::measure::QUIET;

    fn table() -> Table {
        let row = |contestant, kind, samples: &[f64]| Row {
            contestant,
            kind,
            samples: samples.to_vec(),
        };
        Table {
            bench: Bench {
                name: "spin st",
                what: "Spins.",
                per: "turn",
                unit: Unit::Nanoseconds,
                targets: &[Target {
                    contestant: "mine",
                    bar: Bar::Of("peer", 0.5),
                }],
            },
            rows: vec![
                row("mine", Kind::Ours, &[123.4, 120.0, 130.0]),
                row("peer", Kind::Peer, &[200.0, 200.0, 200.0]),
                row("floor", Kind::Floor, &[1.0, 1.0, 1.0]),
            ],
            others: 0.0,
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.5, 9.99, 42.42, 1234.5, -3.0].map(number);
        assert_eq!(texts, ["0.50", "9.99", "42.4", "1234", "-3.00"]);
    }

    #[test]
    fn json_lines_say_null_where_there_is_nothing_to_say() {
        assert_eq!(
            json(&table()),
            "{\"bench\": \"spin st\", \"contestant\": \"mine\", \"kind\": \"ours\", \
             \"median_ns\": 123.400, \"min_ns\": 120.000, \"per\": \"turn\", \
             \"ratio_to_best_peer\": 0.600, \"target\": \"≤ 0.5 of peer\", \"met\": false, \
             \"others\": 0.000}\n\
             {\"bench\": \"spin st\", \"contestant\": \"peer\", \"kind\": \"peer\", \
             \"median_ns\": 200.000, \"min_ns\": 200.000, \"per\": \"turn\", \
             \"ratio_to_best_peer\": 1.000, \"target\": null, \"met\": null, \"others\": 0.000}\n\
             {\"bench\": \"spin st\", \"contestant\": \"floor\", \"kind\": \"floor\", \
             \"median_ns\": 1.000, \"min_ns\": 1.000, \"per\": \"turn\", \
             \"ratio_to_best_peer\": null, \"target\": null, \"met\": null, \"others\": 0.000}\n"
        );
    }

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(json_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }

    #[test]
    fn markdown_has_a_line_for_each_contestant() {
        assert_eq!(
            markdown(&table()),
            "### spin st\n\nSpins. In ns per turn.\n\n\
             | contestant | kind | min | median | spread | of best peer | target | met |\n\
             |---|---|--:|--:|--:|--:|---|---|\n\
             | mine | ours | 120 | 123 | 4 % | 0.60 | ≤ 0.5 of peer | **no** |\n\
             | peer | peer | 200 | 200 | 0 % | 1.00 |  |  |\n\
             | floor | floor | 1.00 | 1.00 | 0 % |  |  |  |\n"
        );
    }

    #[test]
    fn a_disturbed_bench_says_so_everywhere() {
        let mut table = table();
        table.others = 0.25;
        let words = "others used 25 % of the machine";
        assert!(plain(&table).contains(words));
        assert!(markdown(&table).contains(words));
        assert!(json(&table).contains("\"others\": 0.250"));
        table.others = QUIET;
        assert!(!plain(&table).contains("others"));
    }

    #[test]
    fn plain_tables_line_up() {
        let mut table = table();
        table.rows.pop();
        assert_eq!(
            plain(&table),
            "spin st (ns per turn)\n  \
             contestant  kind  min  median  spread  of best peer  target         met\n  \
             mine        ours  120     123     4 %          0.60  ≤ 0.5 of peer  **no**\n  \
             peer        peer  200     200     0 %          1.00\n"
        );
    }

    #[test]
    fn regenerating_keeps_what_is_written_by_hand() {
        let document = format!("# By hand\n{BEGIN}\nold\n{END}\nalso by hand\n");
        let new = regenerate(&document, "\nnew\n").unwrap();
        assert_eq!(
            new,
            format!("# By hand\n{BEGIN}\n\nnew\n\n{END}\nalso by hand\n")
        );
        assert_eq!(regenerate(&new, "new"), Some(new.clone()));
        assert_eq!(regenerate("no markers", "new"), None);
    }

    #[test]
    fn one_table_is_replaced_and_the_others_stay() {
        let table = table();
        let other = |name| format!("### {name}\n\nwords\n\n| a |\n");
        let file = |tables: &[String]| {
            let tables = tables.join("\n");
            format!("by hand\n{BEGIN}\n\nmachine\n\n{tables}\n{END}\nby hand\n")
        };
        let new = format!("{}\nnote\n", markdown(&table));
        let [a, old, b] = ["a", "spin st", "spin st too"].map(other);
        for before in [vec![a.clone(), old.clone(), b.clone()], vec![old.clone()]] {
            let after: Vec<_> = (before.iter())
                .map(|text| {
                    if *text == old {
                        new.clone()
                    } else {
                        text.clone()
                    }
                })
                .collect();
            assert_eq!(replace(&file(&before), &table, "note"), Some(file(&after)));
            assert_eq!(replace(&file(&after), &table, "note"), Some(file(&after)));
        }
        let added = replace(&file(&[a.clone(), b.clone()]), &table, "note");
        assert_eq!(added, Some(file(&[a, b, new])));
        assert_eq!(replace("no markers", &table, "note"), None);
    }
}
