//! A snapshot as text: a row for each job, or for many siblings that are equal, in columns.
//! Its size and its time grow in proportion to the tree; nothing here is
//! recursive.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use std::panic::Location;
use std::time::Duration;

use crate::base::brief::{brief, grouped};
use crate::base::escape::quoted;
use crate::base::kind::JobKind;
use crate::base::lane::Lane;
use crate::base::observe::JobState;
use crate::base::observe::node::NodeSnapshot;
use crate::base::priority::Priority;
use crate::base::wait_kind::WaitKind;
use crate::more::see::snapshot::TreeSnapshot;

/// From how many equal siblings on they share a row.
const FOLDED_FROM: usize = 4;

/// Beyond this depth the picture is no longer indented.
const DEEPEST_INDENT: usize = 40;

/// How wide the columns of names and of states are at most: a longer entry shifts the
/// rest of its own row alone.
const WIDEST: [usize; 2] = [60, 32];

/// How many sorts of waits a row of many jobs names.
const MOST_WAITS: usize = 2;

/// A [`TreeSnapshot`] as text; see [`TreeSnapshot::text`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is printed with `{}`"]
pub struct TreeText<'a> {
    tree: &'a TreeSnapshot,
    coloured: bool,
    folded: bool,
}

impl TreeSnapshot {
    /// The tree as text, one row for each job, with its state, its age and what it does.
    ///
    /// Four or more siblings of one name and one spawn site share a row, which says how many
    /// they are, how old the oldest is, how many have been told, and what most of them wait
    /// on; below it stand the children of all of them. Names are escaped. The text has no
    /// colours: see [`for_terminal`](TreeText::for_terminal).
    pub fn text(&self) -> TreeText<'_> {
        TreeText {
            tree: self,
            coloured: false,
            folded: true,
        }
    }
}

impl TreeText<'_> {
    /// Gives every job a row of its own.
    pub fn unfolded(mut self) -> Self {
        self.folded = false;
        self
    }

    /// Uses the colours of ANSI terminals, or none, which is the default.
    pub fn coloured(mut self, coloured: bool) -> Self {
        self.coloured = coloured;
        self
    }

    /// Uses colours if the text goes to a terminal: if `out`, such as
    /// [`stdout`](std::io::stdout), is one, the environment variable `NO_COLOR` is unset or
    /// empty, and `TERM` is not `dumb`.
    pub fn for_terminal(self, out: &impl IsTerminal) -> Self {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        let wants = variable("NO_COLOR").is_empty() && variable("TERM") != "dumb";
        self.coloured(wants && out.is_terminal())
    }
}

impl fmt::Display for TreeSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

/// The escape sequences that begin a style; none for plain text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextStyle {
    Plain,
    Dim,
    Bold,
    Calm,
    Warning,
    Alarm,
}

impl TextStyle {
    fn of_state(state: JobState) -> TextStyle {
        match state {
            JobState::New => TextStyle::Dim,
            JobState::Active | JobState::Completed => TextStyle::Plain,
            JobState::Completing => TextStyle::Calm,
            JobState::Cancelling | JobState::Cancelled => TextStyle::Warning,
            JobState::Failed => TextStyle::Alarm,
        }
    }

    fn write(self, f: &mut fmt::Formatter<'_>, coloured: bool, words: &str) -> fmt::Result {
        let begin = match self {
            TextStyle::Dim => "\u{1b}[2m",
            TextStyle::Bold => "\u{1b}[1m",
            TextStyle::Calm => "\u{1b}[36m",
            TextStyle::Warning => "\u{1b}[33m",
            TextStyle::Alarm => "\u{1b}[31m",
            TextStyle::Plain => return f.write_str(words),
        };
        match coloured && !words.is_empty() {
            true => write!(f, "{begin}{words}\u{1b}[0m"),
            false => f.write_str(words),
        }
    }
}

/// One row of the text, before it is aligned.
struct TextRow {
    /// The lines of the tree before the label.
    lines: String,
    label: String,
    is_many: bool,
    state: String,
    state_style: TextStyle,
    age: String,
    what: String,
    what_style: TextStyle,
}

impl fmt::Display for TreeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let width = |text: &str| text.chars().count();
        let widest = |of: &dyn Fn(&TextRow) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let names = widest(&|row| width(&row.lines) + width(&row.label)).min(WIDEST[0]);
        let states = widest(&|row| width(&row.state)).min(WIDEST[1]);
        let ages = widest(&|row| width(&row.age));
        for row in &rows {
            TextStyle::Dim.write(f, self.coloured, &row.lines)?;
            let label = match row.is_many {
                true => TextStyle::Bold,
                false => TextStyle::Plain,
            };
            label.write(f, self.coloured, &row.label)?;
            let to_names = names.saturating_sub(width(&row.lines) + width(&row.label));
            write!(f, "{:to_names$}  ", "")?;
            row.state_style.write(f, self.coloured, &row.state)?;
            let to_states = states.saturating_sub(width(&row.state));
            write!(f, "{:to_states$}  {:>ages$}", "", row.age)?;
            if !row.what.is_empty() {
                f.write_str("  ")?;
                row.what_style.write(f, self.coloured, &row.what)?;
            }
            f.write_char('\n')?;
        }
        for cycle in self.tree.cycles() {
            TextStyle::Alarm.write(f, self.coloured, &cycle.to_string())?;
            f.write_char('\n')?;
        }
        Ok(())
    }
}

/// The properties in which equal siblings agree.
type SiblingKey<'a> = (JobKind, &'a str, &'static Location<'static>);

impl TreeText<'_> {
    fn rows(&self) -> Vec<TextRow> {
        let nodes = self.tree.nodes();
        let mut rows = Vec::new();
        // The jobs of each row to come, the depth of the row and whether it is the last of
        // its siblings; the last entry is the next row.
        let mut todo: Vec<(Vec<usize>, usize, bool)> = Vec::new();
        if !nodes.is_empty() {
            todo.push((vec![0], 0, true));
        }
        // For each level whether a later sibling follows, so that its line goes on.
        let mut more: Vec<bool> = Vec::new();
        while let Some((jobs, depth, last)) = todo.pop() {
            more.truncate(depth);
            more.push(!last);
            let mut lines = String::new();
            for goes_on in more.iter().take(depth.min(DEEPEST_INDENT)).skip(1) {
                lines.push_str(if *goes_on { "│   " } else { "    " });
            }
            if depth > 0 {
                lines.push_str(if last { "└── " } else { "├── " });
            }
            rows.push(match jobs[..] {
                [one] => TextRow::of_one(lines, &nodes[one]),
                _ => TextRow::of_many(lines, jobs.iter().map(|at| &nodes[*at])),
            });
            let groups = self.groups(&jobs);
            let first = todo.len();
            todo.extend(groups.into_iter().map(|group| (group, depth + 1, false)));
            if let Some((_, _, last)) = todo.get_mut(first..).and_then(<[_]>::last_mut) {
                *last = true;
            }
            todo[first..].reverse();
        }
        rows
    }

    /// The rows below a row: the children of its jobs, equal ones together.
    fn groups(&self, jobs: &[usize]) -> Vec<Vec<usize>> {
        let nodes = self.tree.nodes();
        let children = jobs.iter().flat_map(|at| self.tree.children_at(*at));
        if !self.folded {
            return children.map(|at| vec![at]).collect();
        }
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut known: HashMap<SiblingKey<'_>, usize> = HashMap::new();
        for at in children {
            let node = &nodes[at];
            match known.entry((node.kind, &node.name, node.site)) {
                Entry::Vacant(place) => {
                    place.insert(groups.len());
                    groups.push(vec![at]);
                }
                Entry::Occupied(place) => groups[*place.get()].push(at),
            }
        }
        let least = match jobs.len() {
            1 => FOLDED_FROM,
            _ => 2,
        };
        if groups
            .iter()
            .all(|group| group.len() == 1 || group.len() >= least)
        {
            return groups;
        }
        // Small groups are taken apart, and stand in the order of their jobs.
        let mut apart: Vec<Vec<usize>> = Vec::new();
        for group in groups {
            match group.len() >= least {
                true => apart.push(group),
                false => apart.extend(group.into_iter().map(|at| vec![at])),
            }
        }
        apart.sort_by_key(|group| group[0]);
        apart
    }
}

impl TextRow {
    fn of_one(lines: String, node: &NodeSnapshot) -> TextRow {
        let told = node.told_since.is_some() || node.swallows_cancellation;
        TextRow {
            lines,
            label: format!("{} {}", node.kind, quoted(&node.name)),
            is_many: false,
            state: format!("{:?}", node.state),
            state_style: TextStyle::of_state(node.state),
            age: brief(node.age).to_string(),
            what: NodeDoes { node, first: "" }.to_string(),
            what_style: match told || node.shielded {
                true => TextStyle::Alarm,
                false => TextStyle::Plain,
            },
        }
    }

    // Long because it has a line for each fact that is counted.
    fn of_many<'a>(
        lines: String,
        nodes: impl Iterator<Item = &'a NodeSnapshot> + Clone,
    ) -> TextRow {
        let count =
            |is: &dyn Fn(&NodeSnapshot) -> bool| nodes.clone().filter(|node| is(node)).count();
        let all = nodes.clone().count();
        let mut states: Vec<(JobState, usize)> = Vec::new();
        let mut waits: HashMap<(WaitKind, Option<&Location<'_>>), (usize, Duration)> =
            HashMap::new();
        let mut oldest = Duration::ZERO;
        for node in nodes.clone() {
            oldest = oldest.max(node.age);
            match states.iter_mut().find(|(state, _)| *state == node.state) {
                Some((_, count)) => *count += 1,
                None => states.push((node.state, 1)),
            }
            if let Some((kind, site, since)) = node.waits_on {
                let (count, longest) = waits.entry((kind, site)).or_default();
                (*count, *longest) = (*count + 1, since.max(*longest));
            }
        }
        states.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let style = states.iter().map(|(state, _)| TextStyle::of_state(*state));
        let style = style.max_by_key(|style| *style as u8);
        let words = states.iter().map(|(state, count)| match *count == all {
            true => format!("{state:?}"),
            false => format!("{} {state:?}", grouped(*count)),
        });
        let state = words.collect::<Vec<_>>().join(", ");
        let Some(first) = nodes.clone().next() else {
            unreachable!("a row has a job");
        };
        let mut what = format!("spawned at {}:{}", first.site.file(), first.site.line());
        let told = count(&|node| node.told_since.is_some());
        let shielded = count(&|node| node.shielded);
        let swallow = count(&|node| node.swallows_cancellation);
        let parts = [
            (told, "told"),
            (count(&|node| node.running && node.polls > 0), "running"),
            (shielded, "shielded"),
            (swallow, "swallow cancellation"),
            (count(&|node| node.lane == Lane::Main), "on main"),
            (
                count(&|node| matches!(node.lane, Lane::Pinned(_))),
                "pinned",
            ),
            (
                count(&|node| node.priority == Priority::High),
                "with high priority",
            ),
            (
                count(&|node| node.priority == Priority::Low),
                "with low priority",
            ),
        ];
        for (count, words) in parts.into_iter().filter(|(count, _)| *count > 0) {
            let _ = write!(what, ", {} {words}", grouped(count));
        }
        let mut waits: Vec<_> = waits.into_iter().collect();
        waits.sort_by_key(|((kind, site), (count, _))| {
            (std::cmp::Reverse(*count), *kind as u8, *site)
        });
        for ((kind, site), (count, longest)) in waits.iter().take(MOST_WAITS) {
            let _ = write!(what, ", {} in {kind}", grouped(*count));
            if let Some(site) = site {
                let _ = write!(what, " at {}:{}", site.file(), site.line());
            }
            let _ = write!(what, " (longest {})", brief(*longest));
        }
        let others: usize = waits
            .iter()
            .skip(MOST_WAITS)
            .map(|(_, (count, _))| count)
            .sum();
        if others > 0 {
            let _ = write!(what, ", {} in other waits", grouped(others));
        }
        if let Some(left) = nodes.clone().filter_map(|node| node.deadline_in).min() {
            let _ = write!(what, ", first deadline in {}", brief(left));
        }
        TextRow {
            lines,
            label: format!("{} × {} {}", grouped(all), first.kind, quoted(&first.name)),
            is_many: true,
            state,
            state_style: style.unwrap_or(TextStyle::Plain),
            age: format!("oldest {}", brief(oldest)),
            what,
            what_style: match told + shielded + swallow {
                0 => TextStyle::Plain,
                _ => TextStyle::Alarm,
            },
        }
    }
}

impl fmt::Display for NodeSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.kind, quoted(&self.name), self.state)?;
        NodeDoes {
            node: self,
            first: ", ",
        }
        .fmt(f)
    }
}

/// What a job does, in words with commas between.
struct NodeDoes<'a> {
    node: &'a NodeSnapshot,
    /// The words before the first entry.
    first: &'static str,
}

impl fmt::Display for NodeDoes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeDoes { node, first } = self;
        let mut between = *first;
        let mut say = |f: &mut fmt::Formatter<'_>, words: fmt::Arguments<'_>| {
            let before = std::mem::replace(&mut between, ", ");
            write!(f, "{before}{words}")
        };
        if node.running && node.polls > 0 {
            say(f, format_args!("running"))?;
        }
        if node.lane != Lane::Pool {
            say(f, format_args!("on {}", node.lane))?;
        }
        if node.priority != Priority::Normal {
            say(f, format_args!("{} priority", node.priority))?;
        }
        if node.shielded {
            say(f, format_args!("shielded"))?;
        }
        if let Some((kind, site, since)) = &node.waits_on {
            let since = brief(*since);
            match site {
                Some(site) => {
                    let (file, line) = (site.file(), site.line());
                    say(
                        f,
                        format_args!("waits on {kind} at {file}:{line} for {since}"),
                    )?;
                }
                None => say(f, format_args!("waits on {kind} for {since}"))?,
            }
        }
        if let Some(waits_for) = &node.waits_for {
            say(f, format_args!("waits for {waits_for}"))?;
        }
        for (n, waiter) in node.waited_for_by.iter().enumerate() {
            let words = if n == 0 { "waited for by " } else { "" };
            say(f, format_args!("{words}{waiter}"))?;
        }
        match (node.waiters_outside(), node.waited_for_by.len()) {
            (0, _) => {}
            (n, 0) => say(f, format_args!("waited for by {n} outside"))?,
            (n, _) => say(f, format_args!("{n} outside"))?,
        }
        if let Some(left) = node.deadline_in {
            say(f, format_args!("deadline in {}", brief(left)))?;
        }
        if let Some(told) = node.told_since {
            say(f, format_args!("told {} ago", brief(told)))?;
        }
        if let Some(reason) = &node.reason {
            say(f, format_args!("{reason}"))?;
        }
        if node.swallows_cancellation {
            say(f, format_args!("swallows cancellation"))?;
        }
        Ok(())
    }
}
