//! Names and texts of the program in what the library prints. A name may come from outside:
//! a URL, the name of a user. What could command a terminal, begin a new line or change the
//! direction of writing is written as an escape, and a long text is cut.
//!
//! Everything that prints a name goes through here: no other file puts a placeholder between
//! quotation marks, and a test looks for that.

use std::fmt::{self, Write as _};

/// How many characters of a name are printed; of a longer one its length in bytes is added.
const LONGEST: usize = 200;

/// How many characters of a text are printed that is longer than names are: the words of a
/// cancel.
pub(crate) const LONG: usize = 2000;

/// A text with everything escaped that a terminal would obey.
#[derive(Clone, Copy, Debug)]
pub struct EscapedText<'a> {
    text: &'a str,
    in_quotes: bool,
    longest: usize,
}

impl EscapedText<'_> {
    /// Sets after how many characters the text is cut.
    pub fn cut_after(mut self, longest: usize) -> Self {
        self.longest = longest;
        self
    }
}

/// Prints a text between quotation marks, on one line and without control characters.
/// After 200 characters the text is cut, and its length is added.
pub fn quoted(text: &str) -> EscapedText<'_> {
    EscapedText {
        text,
        in_quotes: true,
        longest: LONGEST,
    }
}

/// As [`quoted`], without the quotation marks.
pub fn escaped(text: &str) -> EscapedText<'_> {
    EscapedText {
        text,
        in_quotes: false,
        longest: LONGEST,
    }
}

/// Prints a path of names, from the root, with slashes between.
pub fn escaped_path(path: &[String]) -> String {
    let mut out = String::new();
    for (n, name) in path.iter().enumerate() {
        let _ = write!(out, "{}{}", if n == 0 { "" } else { "/" }, escaped(name));
    }
    out
}

/// Returns true if a terminal or a viewer may obey the character instead of showing it:
/// control characters, marks of direction and joining, separators of lines, tags.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The whole of a message, whose own lines stay as they are: whatever else a terminal would
/// obey is escaped.
pub(crate) fn message(words: String) -> String {
    let obeyed = |c: char| c != '\n' && c != '\t' && is_obeyed(c);
    if !words.contains(obeyed) {
        return words;
    }
    let mut out = String::with_capacity(words.len() + 16);
    for c in words.chars() {
        match obeyed(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.in_quotes {
            f.write_char('"')?;
        }
        let cut = self.text.char_indices().nth(self.longest).map(|(at, _)| at);
        let shown = &self.text[..cut.unwrap_or(self.text.len())];
        for c in shown.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' if self.in_quotes => f.write_str("\\\"")?,
                c if is_obeyed(c) => write!(f, "{}", c.escape_default())?,
                c => f.write_char(c)?,
            }
        }
        if cut.is_some() {
            f.write_char('…')?;
        }
        if self.in_quotes {
            f.write_char('"')?;
        }
        match cut {
            Some(_) => write!(f, " ({} bytes)", self.text.len()),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn see_2_names_are_escaped_and_cut() {
        assert_eq!(quoted("plain ä 名").to_string(), "\"plain ä 名\"");
        assert_eq!(quoted("a\"b\\c\n").to_string(), r#""a\"b\\c\n""#);
        assert_eq!(escaped("a\"b\u{1b}[2J").to_string(), r#"a"b\u{1b}[2J"#);
        assert_eq!(escaped("\u{9b}1m\u{202e}").to_string(), r"\u{9b}1m\u{202e}");
        let long = "ä".repeat(1 << 19);
        let printed = quoted(&long).to_string();
        assert_eq!(printed, format!("\"{}…\" (1048576 bytes)", "ä".repeat(200)));
        assert_eq!(quoted(&long[..400]).to_string().chars().count(), 202);
    }

    #[test]
    fn see_2_no_character_that_is_obeyed_is_printed() {
        for c in (0..=0x10ffff).filter_map(char::from_u32) {
            let text = c.to_string();
            for printed in [quoted(&text).to_string(), escaped(&text).to_string()] {
                assert!(!printed.contains(is_obeyed), "{c:?}: {printed:?}");
            }
            let said = message(format!("{c}\n"));
            let (words, end) = said.split_at(said.len() - 1);
            assert_eq!(end, "\n");
            let kept = |c| is_obeyed(c) && c != '\n' && c != '\t';
            assert!(!words.contains(kept), "{c:?}: {said:?}");
        }
    }

    #[test]
    fn see_7_the_lines_of_a_message_stay() {
        assert_eq!(message("a\n\tb\u{7}".into()), "a\n\tb\\u{7}");
    }
}
