//! Rules that decide which requests fail: the file of `--faults`.

use http::HeaderMap;
use serde::Deserialize;
use std::sync::atomic::{AtomicU64, Ordering};

use super::order::{FaultOrder, OrderError};

/// Rules of a file, in order. The first rule that matches a request decides.
#[derive(Debug, Default)]
pub struct FaultRules(Vec<FaultRule>);

#[derive(Debug)]
struct FaultRule {
    on: RuleTrigger,
    path: Option<String>,
    model: Option<String>,
    header: Option<(String, String)>,
    from: u64,
    every: u64,
    times: u64,
    order: FaultOrder,
    seen: AtomicU64,
}

/// Event that triggers a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RuleTrigger {
    /// A new connection, before anything is read from it.
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
    on: RuleTrigger,
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

/// Properties of a request that rules match.
pub(crate) struct RequestProperties<'a> {
    /// Its path.
    pub(crate) path: &'a str,
    /// Requested model, if known.
    pub(crate) model: Option<&'a str>,
    /// Its headers.
    pub(crate) headers: &'a HeaderMap,
}

impl FaultRules {
    /// Parses rules in TOML, or in JSON if the text begins with a brace.
    pub fn parse(text: &str) -> Result<Self, OrderError> {
        let raw: RawRules = if text.trim_start().starts_with('{') {
            dialects::json::read(text).map_err(|e| OrderError(e.to_string()))?
        } else {
            toml::from_str(text).map_err(|e| in_one_line(text, &e))?
        };
        let rules = raw.rule.into_iter().enumerate().map(|(at, raw)| {
            FaultRule::check(raw)
                .map_err(|OrderError(why)| OrderError(format!("rule {}: {why}", at + 1)))
        });
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// Returns the fault of a new connection.
    pub(crate) fn for_connection(&self) -> Option<FaultOrder> {
        self.0
            .iter()
            .find(|rule| rule.on == RuleTrigger::Connect && rule.is_due())
            .map(FaultRule::order)
    }

    /// Returns the fault of a request.
    pub(crate) fn for_request(&self, seen: &RequestProperties<'_>) -> Option<FaultOrder> {
        self.0
            .iter()
            .find(|rule| rule.on == RuleTrigger::Request && rule.fits(seen) && rule.is_due())
            .map(FaultRule::order)
    }

    /// Returns true if a rule needs the model, which is in the body.
    pub(crate) fn need_model(&self) -> bool {
        self.0.iter().any(|rule| rule.model.is_some())
    }
}

/// Formats an error in a file as one line.
fn in_one_line(text: &str, error: &toml::de::Error) -> OrderError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
    OrderError(format!("line {line}: {}", error.message().replace('\n', " ")))
}

impl FaultRule {
    fn check(raw: RawRule) -> Result<Self, OrderError> {
        let RawRule { fault, on, path, model, header, from, every, times } = raw;
        let order = FaultOrder::read(&fault)
            .map_err(|OrderError(why)| OrderError(format!("fault: {why}")))?;
        let known = ["reset", "close", "blackhole", "garbage"];
        if on == RuleTrigger::Connect && !known.contains(&order.name()) {
            let list = known.join(", ");
            return Err(OrderError(format!("fault: on a connection it is one of {list}")));
        }
        if on == RuleTrigger::Connect && (path.is_some() || model.is_some() || header.is_some()) {
            return Err(OrderError("on: a connection has no path, model or header".to_owned()));
        }
        let header = match header {
            None => None,
            Some(text) => match text.split_once(':') {
                Some((name, value)) => {
                    Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
                }
                None => return Err(OrderError("header: write it as \"name: value\"".to_owned())),
            },
        };
        if from == 0 || every == 0 {
            return Err(OrderError("from, every: counting begins with 1".to_owned()));
        }
        let times = times.unwrap_or(u64::MAX);
        Ok(Self { on, path, model, header, from, every, times, order, seen: AtomicU64::new(0) })
    }

    fn order(&self) -> FaultOrder {
        self.order.clone()
    }

    fn fits(&self, seen: &RequestProperties<'_>) -> bool {
        self.path.as_deref().is_none_or(|path| match path.strip_suffix('*') {
            Some(begin) => seen.path.starts_with(begin),
            None => seen.path == path,
        }) && self.model.as_deref().is_none_or(|model| seen.model == Some(model))
            && self.header.as_ref().is_none_or(|(name, value)| {
                let given = seen.headers.get(name).map(http::HeaderValue::as_bytes);
                given == Some(value.as_bytes())
            })
    }

    /// Counts a match. Returns true if the rule applies to it.
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

    fn names(rules: &FaultRules, path: &str, model: &str, count: usize) -> Vec<&'static str> {
        let headers = HeaderMap::new();
        let seen = RequestProperties { path, model: Some(model), headers: &headers };
        let due = std::iter::repeat_with(|| rules.for_request(&seen).map_or("-", |o| o.name()));
        due.take(count).collect()
    }

    #[test]
    fn rules_count_and_the_first_that_fits_decides() {
        let text = "[[rule]]\nmodel = \"a\"\nfrom = 2\ntimes = 2\nfault = \"empty\"\n\
                    [[rule]]\npath = \"/v1/*\"\nevery = 3\nfault = \"reset\"\n";
        let rules = FaultRules::parse(text).unwrap();
        assert!(rules.need_model() && rules.for_connection().is_none());
        assert_eq!(names(&rules, "/v1/x", "a", 4), ["reset", "empty", "empty", "-"]);
        assert_eq!(names(&rules, "/v2/x", "b", 2), ["-", "-"]);
        let json = r#"{"rule":[{"on":"connect","fault":"reset","times":1}]}"#;
        let rules = FaultRules::parse(json).unwrap();
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
            let said = FaultRules::parse(text).unwrap_err().to_string();
            assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        }
    }
}
