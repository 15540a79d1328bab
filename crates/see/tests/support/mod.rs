//! What the suites of this crate share: a reader of JSON and of the schemas that are used
//! here, which know nothing of the writer.

use std::collections::BTreeMap;

/// A value of JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Reads a whole text.
    pub fn read(text: &str) -> Json {
        let mut reader = JsonReader {
            rest: text.trim_start(),
        };
        let value = reader.value();
        assert!(
            reader.rest.is_empty(),
            "behind the value: {:.80}",
            reader.rest
        );
        value
    }

    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.get(name),
            _ => None,
        }
    }

    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    pub fn number(&self) -> f64 {
        match self {
            Json::Number(number) => *number,
            other => panic!("not a number: {other:?}"),
        }
    }
}

struct JsonReader<'a> {
    rest: &'a str,
}

impl JsonReader<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else {
            return false;
        };
        self.rest = rest.trim_start();
        true
    }

    fn expect(&mut self, token: &str) {
        assert!(self.eat(token), "no {token} at {:.80}", self.rest);
    }

    fn value(&mut self) -> Json {
        for (word, value) in [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
        ] {
            if self.eat(word) {
                return value;
            }
        }
        if self.eat("[") {
            let mut items = Vec::new();
            while !self.eat("]") {
                if !items.is_empty() {
                    self.expect(",");
                }
                items.push(self.value());
            }
            return Json::List(items);
        }
        if self.eat("{") {
            let mut members = BTreeMap::new();
            while !self.eat("}") {
                if !members.is_empty() {
                    self.expect(",");
                }
                let name = self.string();
                self.expect(":");
                let value = self.value();
                assert!(
                    members.insert(name.clone(), value).is_none(),
                    "{name} twice"
                );
            }
            return Json::Object(members);
        }
        if self.rest.starts_with('"') {
            return Json::Text(self.string());
        }
        let end = self.rest.find(|c: char| !"+-.eE0123456789".contains(c));
        let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        Json::Number(
            number
                .parse()
                .unwrap_or_else(|_| panic!("number {number:?}")),
        )
    }

    fn string(&mut self) -> String {
        let mut units: Vec<u16> = Vec::new();
        let mut chars = self.rest.strip_prefix('"').expect("a string").chars();
        loop {
            let c = chars.next().expect("the end of the string");
            let c = match c {
                '"' => break,
                '\\' => match chars.next().expect("an escape") {
                    'n' => '\n',
                    'u' => {
                        let (digits, _) = chars.as_str().split_at(4);
                        units.push(u16::from_str_radix(digits, 16).expect("four digits"));
                        chars = chars.as_str()[4..].chars();
                        continue;
                    }
                    c @ ('"' | '\\') => c,
                    c => panic!("escape {c:?}"),
                },
                c => {
                    assert!(c >= ' ', "a control character");
                    c
                }
            };
            units.extend(c.encode_utf16(&mut [0; 2]).iter());
        }
        self.rest = chars.as_str().trim_start();
        String::from_utf16(&units).expect("text")
    }
}

/// What of `value` is not as `schema` says, with the way there. It knows the keywords that
/// the schemas of this crate use, and panics on others.
pub fn against_schema(value: &Json, schema: &Json) -> Vec<String> {
    let mut wrong = Vec::new();
    check(value, schema, schema, "$", &mut wrong);
    wrong
}

fn check(value: &Json, schema: &Json, all: &Json, at: &str, wrong: &mut Vec<String>) {
    let Json::Object(rules) = schema else {
        panic!("a schema is an object");
    };
    for (rule, wanted) in rules {
        let holds = match rule.as_str() {
            "$schema" | "$defs" | "title" | "description" | "properties" => true,
            "$ref" => {
                let name = wanted
                    .text()
                    .strip_prefix("#/$defs/")
                    .expect("a definition");
                let definition = all.get("$defs").and_then(|defs| defs.get(name));
                check(value, definition.expect("a definition"), all, at, wrong);
                true
            }
            "type" => match (wanted.text(), value) {
                ("string", Json::Text(_))
                | ("boolean", Json::Bool(_))
                | ("array", Json::List(_))
                | ("object", Json::Object(_)) => true,
                ("integer", Json::Number(number)) => number.fract() == 0.0,
                _ => false,
            },
            "const" => value == wanted,
            "enum" => wanted.list().contains(value),
            "minimum" => value.number() >= wanted.number(),
            "items" => {
                for (n, item) in value.list().iter().enumerate() {
                    check(item, wanted, all, &format!("{at}[{n}]"), wrong);
                }
                true
            }
            "required" => wanted
                .list()
                .iter()
                .all(|name| value.get(name.text()).is_some()),
            "additionalProperties" => {
                assert_eq!(*wanted, Json::Bool(false));
                let known = schema.get("properties").expect("properties");
                let Json::Object(members) = value else {
                    wrong.push(format!("{at}: not an object"));
                    return;
                };
                for (name, member) in members {
                    match known.get(name) {
                        Some(rules) => check(member, rules, all, &format!("{at}.{name}"), wrong),
                        None => wrong.push(format!("{at}: has {name}")),
                    }
                }
                true
            }
            other => panic!("the keyword {other}"),
        };
        if !holds {
            wrong.push(format!("{at}: {rule} {wanted:?}, is {value:?}"));
        }
    }
}
