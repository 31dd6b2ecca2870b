//! Fault orders: `reset-after after=3`, a name followed by parameters.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::catalog::{self, FaultEntry};

/// Opens an order inside a text.
const OPEN: &[u8] = b"[[fault:";
/// Closes an order inside a text.
const CLOSE: &[u8] = b"]]";
/// Parameter of every fault: the caller's own word, which identifies the call in the meter.
const TAG: &str = "tag";

/// A fault with its parameters, checked against the table of faults.
#[derive(Clone, Debug)]
pub(crate) struct FaultOrder {
    /// Row of the table of faults.
    pub(super) entry: &'static FaultEntry,
    given: BTreeMap<String, String>,
}

/// Error of parsing or executing an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError(pub(super) String);

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OrderError {}

impl FaultOrder {
    /// Parses an order.
    pub(crate) fn read(text: &str) -> Result<Self, OrderError> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or_else(|| OrderError("the fault has no name".to_owned()))?;
        let entry = catalog::find(name).ok_or_else(|| {
            OrderError(format!("there is no fault `{name}`; GET /faults lists those there are"))
        })?;
        let mut given = BTreeMap::new();
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(OrderError(format!("`{word}`: write it as name=value")));
            };
            if key != TAG && !entry.takes.contains(&key) {
                let takes = if entry.takes.is_empty() {
                    "nothing".to_owned()
                } else {
                    entry.takes.join(", ")
                };
                return Err(OrderError(format!("`{key}`: the fault `{name}` takes {takes}")));
            }
            if given.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(OrderError(format!("`{key}` is given twice")));
            }
        }
        Ok(Self { entry, given })
    }

    /// Returns the last order inside a body. It is part of the prompt's text, so it passes through
    /// any gateway and any format.
    pub(crate) fn within(body: &[u8]) -> Option<Result<Self, OrderError>> {
        let at = body.windows(OPEN.len()).rposition(|window| window == OPEN)?;
        let rest = body.get(at + OPEN.len()..)?;
        let end = rest.windows(CLOSE.len()).position(|window| window == CLOSE)?;
        let text = rest.get(..end)?;
        Some(match std::str::from_utf8(text) {
            Ok(text) => Self::read(text),
            Err(_) => Err(OrderError("the fault is not written in UTF-8".to_owned())),
        })
    }

    /// Returns the caller's own word for the call.
    pub(crate) fn tag(&self) -> Option<&str> {
        self.word(TAG)
    }

    /// Returns the name of the fault.
    pub(crate) fn name(&self) -> &'static str {
        self.entry.name
    }

    /// Returns a parameter as written.
    pub(super) fn word(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(String::as_str)
    }

    /// Returns a number, or the default.
    pub(super) fn number(&self, key: &str, usual: u64) -> Result<u64, OrderError> {
        let Some(text) = self.word(key) else { return Ok(usual) };
        text.parse().map_err(|_| OrderError(format!("`{key}`: `{text}` is not a number")))
    }

    /// Returns a count that fits in memory, or the default.
    pub(super) fn count(&self, key: &str, usual: usize) -> Result<usize, OrderError> {
        let number = self.number(key, usual as u64)?;
        usize::try_from(number).map_err(|_| OrderError(format!("`{key}`: {number} is too many")))
    }

    /// Returns a number of bytes: `9MiB`, `64KiB`, `100`.
    pub(super) fn size(&self, key: &str, usual: u64) -> Result<u64, OrderError> {
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
            .ok_or_else(|| OrderError(format!("`{key}`: write a size such as 64KiB, not `{text}`")))
    }

    /// Returns a duration: `200ms`, `2s`. `None` means forever.
    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, OrderError> {
        let Some(text) = self.word(key) else { return Ok(None) };
        let parsed = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (Some(digits), _) => digits.parse().ok().map(Duration::from_millis),
            (None, Some(digits)) => digits.parse().ok().map(Duration::from_secs),
            (None, None) => None,
        };
        let bad = || OrderError(format!("`{key}`: write a time such as 200ms or 2s, not `{text}`"));
        parsed.map(Some).ok_or_else(bad)
    }

    /// Returns the value of one of the words; the first word is the default.
    pub(super) fn one_of<T: Copy>(
        &self,
        key: &str,
        words: &[(&'static str, T)],
    ) -> Result<T, OrderError> {
        let names = || words.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let found = match self.word(key) {
            None => words.first(),
            Some(text) => words.iter().find(|(name, _)| *name == text),
        };
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| OrderError(format!("`{key}` is one of {}", names())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_a_bad_one_names_its_word() {
        let order = FaultOrder::read("reset-after after=7 tag=x").unwrap();
        assert_eq!((order.name(), order.tag()), ("reset-after", Some("x")));
        assert_eq!(order.number("after", 3).unwrap(), 7);
        for (text, word) in [
            ("", "no name"),
            ("nonsense", "`nonsense`"),
            ("reset-after 7", "`7`"),
            ("reset-after wait=7", "`wait`"),
            ("reset-after after=1 after=2", "`after`"),
        ] {
            assert!(FaultOrder::read(text).unwrap_err().0.contains(word), "{text}");
        }
        let order = FaultOrder::read("stall wait=soon").unwrap();
        assert!(order.time("wait").unwrap_err().0.contains("`wait`"));
    }

    #[test]
    fn the_last_order_in_a_body_counts() {
        let body = br#"{"content":"[[fault: stall]] no, [[fault: empty tag=a-1]] please"}"#;
        let order = FaultOrder::within(body).unwrap().unwrap();
        assert_eq!((order.name(), order.tag()), ("empty", Some("a-1")));
        assert!(FaultOrder::within(b"nothing [[fault: here").is_none());
        assert!(FaultOrder::within(b"[[fault: what]]").unwrap().is_err());
    }
}
