//! Snapshots as JSON, written as a stream: a job at a time, through a buffer of fixed size.

use std::fmt::{self, Write as _};
use std::io;
use std::ops::ControlFlow;
use std::panic::Location;
use std::time::Duration;

use kinfolk_core::host::say::is_obeyed;
use kinfolk_core::{JobId, NodeSnapshot, Tree, TreeSnapshot};

/// The number of the format that [`WriteJson`] writes. It changes when a member goes or
/// changes its meaning; a member that comes does not change it.
pub const JSON_FORMAT: u32 = 1;

/// The schema of the format, as JSON Schema of the draft 2020-12.
pub const JSON_SCHEMA: &str = include_str!("../schema/snapshot-1.json");

/// From how many bytes on what has been written goes out.
const CHUNK: usize = 32 * 1024;

/// Writes the jobs of a tree as JSON: an object with the number of the format, and a list of
/// jobs, one on each line, each before its children.
///
/// Nothing is kept but the text of a few jobs, so that a tree of a million jobs is written in
/// little memory. A [`TreeSnapshot`] writes what it has; a [`Tree`] looks at its jobs while it
/// writes them, keeps none of them and names those that others wait for by their number
/// alone.
///
/// [`JSON_SCHEMA`] says which members there are. Names are written in full; characters that
/// a terminal or a web page would obey are written as escapes.
pub trait WriteJson {
    /// Writes the jobs to `out`. The trait is one of blocking i/o: call it where the thread
    /// may wait.
    ///
    /// # Errors
    /// The first that `out` returns. What was written until then stays written.
    fn write_json(&self, out: impl io::Write) -> io::Result<()>;

    /// Returns the same as a string: for small trees.
    fn to_json(&self) -> String {
        let mut out = Vec::new();
        // A vector takes all that it is given, and what is written is made of strings.
        let _ = self.write_json(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

impl WriteJson for TreeSnapshot {
    fn write_json(&self, out: impl io::Write) -> io::Result<()> {
        let mut stream = JsonStream::begin(out, self.taken());
        for node in self.nodes() {
            stream.job(node)?;
        }
        stream.end()
    }
}

impl WriteJson for Tree {
    fn write_json(&self, out: impl io::Write) -> io::Result<()> {
        let mut stream = JsonStream::begin(out, self.age());
        let walked = self.look_at_each(|node| match stream.job(&node) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        });
        match walked {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => stream.end(),
        }
    }
}

struct JsonStream<W> {
    out: W,
    text: String,
    is_first: bool,
}

impl<W: io::Write> JsonStream<W> {
    fn begin(out: W, taken: Duration) -> JsonStream<W> {
        let taken = taken.as_millis();
        JsonStream {
            out,
            text: format!("{{\"format\":{JSON_FORMAT},\"taken_ms\":{taken},\"jobs\":["),
            is_first: true,
        }
    }

    fn job(&mut self, node: &NodeSnapshot) -> io::Result<()> {
        let before = if self.is_first { "\n" } else { ",\n" };
        self.is_first = false;
        self.text.push_str(before);
        // Writing to a string does not fail.
        let _ = write_job(&mut self.text, node);
        match self.text.len() >= CHUNK {
            true => self.put(),
            false => Ok(()),
        }
    }

    fn end(mut self) -> io::Result<()> {
        self.text.push_str("\n]}\n");
        self.put()?;
        self.out.flush()
    }

    fn put(&mut self) -> io::Result<()> {
        self.out.write_all(self.text.as_bytes())?;
        self.text.clear();
        self.text.shrink_to(2 * CHUNK);
        Ok(())
    }
}

fn write_job(out: &mut String, node: &NodeSnapshot) -> fmt::Result {
    write!(out, "{{\"id\":{}", node.id.number())?;
    if let Some(parent) = node.parent {
        write!(out, ",\"parent\":{}", parent.number())?;
    }
    write!(out, ",\"depth\":{},\"name\":", node.depth)?;
    write_string(out, &node.name)?;
    write!(
        out,
        ",\"kind\":\"{}\",\"state\":\"{:?}\"",
        node.kind, node.state
    )?;
    write_site(out, "", Some(node.site))?;
    write_millis(out, "age", Some(node.age))?;
    write!(out, ",\"polls\":{}", node.polls)?;
    if let Some(task) = &node.task {
        write!(out, ",\"task\":{}", task.id.number())?;
    }
    write!(out, ",\"waiters\":{},\"waited_for_by\":[", node.waiters)?;
    for (n, waiter) in node.waited_for_by.iter().enumerate() {
        out.push_str(if n == 0 { "" } else { "," });
        write_other(out, node.id, waiter.id, waiter.name.as_deref())?;
        out.push('}');
    }
    out.push(']');
    if let Some((kind, site, since)) = &node.waits_on {
        write!(out, ",\"waits_on\":\"{kind}\"")?;
        write_millis(out, "waits", Some(*since))?;
        write_site(out, "waits_", *site)?;
    }
    if let Some(waits_for) = &node.waits_for {
        write!(out, ",\"waits_for\":{{\"kind\":")?;
        write_string(out, waits_for.kind)?;
        if let Some(name) = &waits_for.name {
            out.push_str(",\"name\":");
            write_string(out, name)?;
        }
        write_site(out, "", Some(waits_for.site))?;
        out.push_str(",\"held_by\":[");
        for (n, held) in waits_for.held_by.iter().enumerate() {
            out.push_str(if n == 0 { "" } else { "," });
            write_other(out, node.id, held.id, held.name.as_deref())?;
            write_site(out, "", Some(held.site))?;
            out.push('}');
        }
        out.push_str("]}");
    }
    write_millis(out, "polled", node.polled_for)?;
    write_millis(out, "deadline_in", node.deadline_in)?;
    write_millis(out, "cancelled", node.cancelled_since)?;
    write_millis(out, "told", node.told_since)?;
    if let Some(reason) = &node.reason {
        out.push_str(",\"reason\":");
        write_string(out, reason)?;
    }
    write!(
        out,
        ",\"leases\":{},\"running\":{},\"service\":{},\"shielded\":{}",
        node.leases, node.running, node.service, node.shielded
    )?;
    write_site(out, "shielded_", node.shielded_at)?;
    write!(
        out,
        ",\"swallows\":{},\"lane\":\"{}\",\"priority\":\"{}\"}}",
        node.swallows_cancellation, node.lane, node.priority
    )
}

/// Another job, in an object that is left open.
fn write_other(out: &mut String, own: JobId, other: JobId, name: Option<&str>) -> fmt::Result {
    write!(out, "{{\"id\":{}", other.number())?;
    if !other.shares_tree_with(own) {
        out.push_str(",\"other_tree\":true");
    }
    if let Some(name) = name {
        out.push_str(",\"name\":");
        write_string(out, name)?;
    }
    Ok(())
}

fn write_site(out: &mut String, of: &str, site: Option<&Location<'_>>) -> fmt::Result {
    let Some(site) = site else {
        return Ok(());
    };
    write!(out, ",\"{of}file\":")?;
    write_string(out, site.file())?;
    write!(out, ",\"{of}line\":{}", site.line())
}

fn write_millis(out: &mut String, of: &str, time: Option<Duration>) -> fmt::Result {
    match time {
        Some(time) => write!(out, ",\"{of}_ms\":{}", time.as_millis()),
        None => Ok(()),
    }
}

/// Writes a string of JSON. Beyond what JSON asks for, what could end a script in a web
/// page or command a terminal is escaped.
pub(crate) fn write_string(out: &mut String, text: &str) -> fmt::Result {
    out.push('"');
    let mut rest = text;
    let special = |c: char| matches!(c, '"' | '\\' | '<' | '>' | '&') || is_obeyed(c);
    while let Some(at) = rest.find(special) {
        out.push_str(&rest[..at]);
        let mut after = rest[at..].chars();
        match after.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            None => {}
        }
        rest = after.as_str();
    }
    out.push_str(rest);
    out.push('"');
    Ok(())
}
