//! A fault as it is ordered: `reset-after after=3`. A name, then parameters, all in plain words.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::catalog::{self, Entry};

/// What opens an order inside a text.
const OPEN: &[u8] = b"[[fault:";
/// What closes it.
const CLOSE: &[u8] = b"]]";
/// Every fault may carry a word of the caller's own, to find its row in the meter again.
const TAG: &str = "tag";

/// One fault with its parameters, checked against the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// The row of the catalogue.
    pub(super) entry: &'static Entry,
    given: BTreeMap<String, String>,
}

/// Why an order cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOrder(pub(super) String);

impl fmt::Display for BadOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadOrder {}

impl Order {
    /// Reads an order.
    pub(crate) fn read(text: &str) -> Result<Self, BadOrder> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or_else(|| BadOrder("the fault has no name".to_owned()))?;
        let entry = catalog::find(name).ok_or_else(|| {
            BadOrder(format!("there is no fault `{name}`; GET /faults lists those there are"))
        })?;
        let mut given = BTreeMap::new();
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(BadOrder(format!("`{word}`: write it as name=value")));
            };
            if key != TAG && !entry.takes.contains(&key) {
                let takes = if entry.takes.is_empty() {
                    "nothing".to_owned()
                } else {
                    entry.takes.join(", ")
                };
                return Err(BadOrder(format!("`{key}`: the fault `{name}` takes {takes}")));
            }
            if given.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(BadOrder(format!("`{key}` is given twice")));
            }
        }
        Ok(Self { entry, given })
    }

    /// The last order inside a body, if there is one. It stands in the text of a prompt, so it
    /// arrives through any gateway and in any format.
    pub(crate) fn within(body: &[u8]) -> Option<Result<Self, BadOrder>> {
        let at = body.windows(OPEN.len()).rposition(|window| window == OPEN)?;
        let rest = body.get(at + OPEN.len()..)?;
        let end = rest.windows(CLOSE.len()).position(|window| window == CLOSE)?;
        let text = rest.get(..end)?;
        Some(match std::str::from_utf8(text) {
            Ok(text) => Self::read(text),
            Err(_) => Err(BadOrder("the fault is not written in UTF-8".to_owned())),
        })
    }

    /// The word by which the caller finds this call again.
    pub(crate) fn tag(&self) -> Option<&str> {
        self.word(TAG)
    }

    /// The fault's name.
    pub(crate) fn name(&self) -> &'static str {
        self.entry.name
    }

    /// A word, as it was given.
    pub(super) fn word(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(String::as_str)
    }

    /// A number, or the usual one.
    pub(super) fn number(&self, key: &str, usual: u64) -> Result<u64, BadOrder> {
        let Some(text) = self.word(key) else { return Ok(usual) };
        text.parse().map_err(|_| BadOrder(format!("`{key}`: `{text}` is not a number")))
    }

    /// A number of things that fit in memory.
    pub(super) fn count(&self, key: &str, usual: usize) -> Result<usize, BadOrder> {
        let number = self.number(key, usual as u64)?;
        usize::try_from(number).map_err(|_| BadOrder(format!("`{key}`: {number} is too many")))
    }

    /// A number of bytes: `9MiB`, `64KiB`, `100`.
    pub(super) fn size(&self, key: &str, usual: u64) -> Result<u64, BadOrder> {
        let Some(text) = self.word(key) else { return Ok(usual) };
        let (digits, unit) = match (text.strip_suffix("MiB"), text.strip_suffix("KiB")) {
            (Some(digits), _) => (digits, 1 << 20),
            (None, Some(digits)) => (digits, 1 << 10),
            (None, None) => (text, 1),
        };
        digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit))
            .ok_or_else(|| BadOrder(format!("`{key}`: write a size such as 64KiB, not `{text}`")))
    }

    /// A time: `200ms`, `2s`. None is for ever.
    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, BadOrder> {
        let Some(text) = self.word(key) else { return Ok(None) };
        let parsed = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (Some(digits), _) => digits.parse().ok().map(Duration::from_millis),
            (None, Some(digits)) => digits.parse().ok().map(Duration::from_secs),
            (None, None) => None,
        };
        let bad = || BadOrder(format!("`{key}`: write a time such as 200ms or 2s, not `{text}`"));
        parsed.map(Some).ok_or_else(bad)
    }

    /// One of some words, the first of them when none is given.
    pub(super) fn one_of<T: Copy>(
        &self,
        key: &str,
        words: &[(&'static str, T)],
    ) -> Result<T, BadOrder> {
        let names = || words.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let found = match self.word(key) {
            None => words.first(),
            Some(text) => words.iter().find(|(name, _)| *name == text),
        };
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| BadOrder(format!("`{key}` is one of {}", names())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_a_bad_one_names_its_word() {
        let order = Order::read("reset-after after=7 tag=x").unwrap();
        assert_eq!((order.name(), order.tag()), ("reset-after", Some("x")));
        assert_eq!(order.number("after", 3).unwrap(), 7);
        for (text, word) in [
            ("", "no name"),
            ("nonsense", "`nonsense`"),
            ("reset-after 7", "`7`"),
            ("reset-after wait=7", "`wait`"),
            ("reset-after after=1 after=2", "`after`"),
        ] {
            assert!(Order::read(text).unwrap_err().0.contains(word), "{text}");
        }
        let order = Order::read("stall wait=soon").unwrap();
        assert!(order.time("wait").unwrap_err().0.contains("`wait`"));
    }

    #[test]
    fn the_last_order_in_a_body_counts() {
        let body = br#"{"content":"[[fault: stall]] no, [[fault: empty tag=a-1]] please"}"#;
        let order = Order::within(body).unwrap().unwrap();
        assert_eq!((order.name(), order.tag()), ("empty", Some("a-1")));
        assert!(Order::within(b"nothing [[fault: here").is_none());
        assert!(Order::within(b"[[fault: what]]").unwrap().is_err());
    }
}
