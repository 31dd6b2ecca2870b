//! Which requests fail, and how often: the file behind `--faults`.

use http::HeaderMap;
use serde::Deserialize;
use std::sync::atomic::{AtomicU64, Ordering};

use super::order::{BadOrder, Order};

/// The rules of a file, in the order they are looked at: the first that fits a request decides.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    on: On,
    path: Option<String>,
    model: Option<String>,
    header: Option<(String, String)>,
    from: u64,
    every: u64,
    times: u64,
    order: Order,
    seen: AtomicU64,
}

/// What a rule waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum On {
    /// A connection, before anything is read from it.
    Connect,
    /// A request.
    #[default]
    Request,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    #[serde(default)]
    rule: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    fault: String,
    #[serde(default)]
    on: On,
    path: Option<String>,
    model: Option<String>,
    header: Option<String>,
    #[serde(default = "one")]
    from: u64,
    #[serde(default = "one")]
    every: u64,
    times: Option<u64>,
}

const fn one() -> u64 {
    1
}

/// What a rule can know of a request.
pub(crate) struct Seen<'a> {
    /// Its path.
    pub(crate) path: &'a str,
    /// The model it asks for, once that is known.
    pub(crate) model: Option<&'a str>,
    /// Its headers.
    pub(crate) headers: &'a HeaderMap,
}

impl Rules {
    /// Reads rules written in TOML or, when they begin with a brace, in JSON.
    pub fn read(text: &str) -> Result<Self, BadOrder> {
        let raw: RawRules = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|e| BadOrder(e.to_string()))?
        } else {
            toml::from_str(text).map_err(|e| in_one_line(text, &e))?
        };
        let rules = raw.rule.into_iter().enumerate().map(|(at, raw)| {
            Rule::check(raw).map_err(|BadOrder(why)| BadOrder(format!("rule {}: {why}", at + 1)))
        });
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// The fault of a new connection.
    pub(crate) fn for_connection(&self) -> Option<Order> {
        self.0.iter().find(|rule| rule.on == On::Connect && rule.is_due()).map(Rule::order)
    }

    /// The fault of a request.
    pub(crate) fn for_request(&self, seen: &Seen<'_>) -> Option<Order> {
        self.0
            .iter()
            .find(|rule| rule.on == On::Request && rule.fits(seen) && rule.is_due())
            .map(Rule::order)
    }

    /// Whether some rule asks for the model, which stands in the body.
    pub(crate) fn need_model(&self) -> bool {
        self.0.iter().any(|rule| rule.model.is_some())
    }
}

/// A mistake in a file, told in one line.
fn in_one_line(text: &str, error: &toml::de::Error) -> BadOrder {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
    BadOrder(format!("line {line}: {}", error.message().replace('\n', " ")))
}

impl Rule {
    fn check(raw: RawRule) -> Result<Self, BadOrder> {
        let RawRule { fault, on, path, model, header, from, every, times } = raw;
        let order =
            Order::read(&fault).map_err(|BadOrder(why)| BadOrder(format!("fault: {why}")))?;
        let known = ["reset", "close", "blackhole", "garbage"];
        if on == On::Connect && !known.contains(&order.name()) {
            let list = known.join(", ");
            return Err(BadOrder(format!("fault: on a connection it is one of {list}")));
        }
        if on == On::Connect && (path.is_some() || model.is_some() || header.is_some()) {
            return Err(BadOrder("on: a connection has no path, model or header".to_owned()));
        }
        let header = match header {
            None => None,
            Some(text) => match text.split_once(':') {
                Some((name, value)) => {
                    Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
                }
                None => return Err(BadOrder("header: write it as \"name: value\"".to_owned())),
            },
        };
        if from == 0 || every == 0 {
            return Err(BadOrder("from, every: counting begins with 1".to_owned()));
        }
        let times = times.unwrap_or(u64::MAX);
        Ok(Self { on, path, model, header, from, every, times, order, seen: AtomicU64::new(0) })
    }

    fn order(&self) -> Order {
        self.order.clone()
    }

    fn fits(&self, seen: &Seen<'_>) -> bool {
        self.path.as_deref().is_none_or(|path| match path.strip_suffix('*') {
            Some(begin) => seen.path.starts_with(begin),
            None => seen.path == path,
        }) && self.model.as_deref().is_none_or(|model| seen.model == Some(model))
            && self.header.as_ref().is_none_or(|(name, value)| {
                let given = seen.headers.get(name).map(http::HeaderValue::as_bytes);
                given == Some(value.as_bytes())
            })
    }

    /// Counts one more, and tells whether it is its turn.
    fn is_due(&self) -> bool {
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        number
            .checked_sub(self.from)
            .is_some_and(|past| past % self.every == 0 && past / self.every < self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rules: &Rules, path: &str, model: &str, count: usize) -> Vec<&'static str> {
        let headers = HeaderMap::new();
        let seen = Seen { path, model: Some(model), headers: &headers };
        let due = std::iter::repeat_with(|| rules.for_request(&seen).map_or("-", |o| o.name()));
        due.take(count).collect()
    }

    #[test]
    fn rules_count_and_the_first_that_fits_decides() {
        let text = "[[rule]]\nmodel = \"a\"\nfrom = 2\ntimes = 2\nfault = \"empty\"\n\
                    [[rule]]\npath = \"/v1/*\"\nevery = 3\nfault = \"reset\"\n";
        let rules = Rules::read(text).unwrap();
        assert!(rules.need_model() && rules.for_connection().is_none());
        assert_eq!(names(&rules, "/v1/x", "a", 4), ["reset", "empty", "empty", "-"]);
        assert_eq!(names(&rules, "/v2/x", "b", 2), ["-", "-"]);
        let json = r#"{"rule":[{"on":"connect","fault":"reset","times":1}]}"#;
        let rules = Rules::read(json).unwrap();
        assert_eq!(rules.for_connection().map(|order| order.name()), Some("reset"));
        assert!(rules.for_connection().is_none());
    }

    #[test]
    fn a_bad_rule_is_named() {
        for (text, why) in [
            ("[[rule]]\nfault = \"nonsense\"", "rule 1: fault"),
            ("[[rule]]\nfault = \"reset\"\nfrom = 0", "from"),
            ("[[rule]]\nfault = \"empty\"\non = \"connect\"", "connection"),
            ("[[rule]]\nfault = \"empty\"\nheader = \"x\"", "header"),
            ("[[rule]]\nfault = \"empty\"\nmodels = \"x\"", "models"),
            ("[[rule]]\nfault = \"empty\"\nmodels = \"x\"", "line 3"),
        ] {
            let said = Rules::read(text).unwrap_err().to_string();
            assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        }
    }
}
