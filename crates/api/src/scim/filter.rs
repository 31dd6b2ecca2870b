//! Filters and paths of attributes (RFC 7644, sections 3.4.2.2 and 3.5.2).
//!
//! The whole grammar is parsed, so that an error tells a wrong filter from one that the gateway does not support.

use admin::{ScimErrorKind, ScimProblem};
use std::fmt;

/// Longest filter or path.
const MAX_FILTER_BYTES: usize = 8 << 10;
/// Deepest nesting of brackets, parentheses and `not`.
const MAX_DEPTH: u32 = 16;

/// Largest number of conditions that `and` joins. Each may be a table more for the database to join.
const MAX_CONJUNCTS: usize = 8;

/// Comparison of an attribute with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOperator {
    Eq,
    Ne,
    Co,
    Sw,
    Ew,
    Gt,
    Lt,
    Ge,
    Le,
}

impl CompareOperator {
    pub(crate) const ALL: [Self; 9] =
        [Self::Eq, Self::Ne, Self::Co, Self::Sw, Self::Ew, Self::Gt, Self::Lt, Self::Ge, Self::Le];

    const fn word(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Co => "co",
            Self::Sw => "sw",
            Self::Ew => "ew",
            Self::Gt => "gt",
            Self::Lt => "lt",
            Self::Ge => "ge",
            Self::Le => "le",
        }
    }
}

/// Value that an attribute is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FilterValue {
    Text(String),
    Bool(bool),
    Number(serde_json::Number),
    Null,
}

/// Path of an attribute: `userName`, `name.givenName`, `emails[type eq "work"].value`, each with the schema before it
/// or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttributePath {
    /// URN of the schema.
    pub(crate) schema: Option<String>,
    pub(crate) attribute: String,
    /// Filter of the elements of a list.
    pub(crate) elements: Option<Box<ScimFilter>>,
    pub(crate) sub_attribute: Option<String>,
}

/// A filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScimFilter {
    Compare(AttributePath, CompareOperator, FilterValue),
    Present(AttributePath),
    /// A list with an element that fits: `members[value eq "x"]`.
    Holds(AttributePath),
    And(Box<ScimFilter>, Box<ScimFilter>),
    Or(Box<ScimFilter>, Box<ScimFilter>),
    Not(Box<ScimFilter>),
}

impl ScimFilter {
    /// Parses a filter.
    pub(crate) fn parse(text: &str) -> Result<Self, ScimProblem> {
        let wrong = |why: String| {
            ScimProblem::new(ScimErrorKind::InvalidFilter, format!("the filter is wrong: {why}"))
        };
        let mut parser = FilterParser::new(text).map_err(wrong)?;
        let filter = parser.alternatives(0).map_err(wrong)?;
        parser.end().map_err(wrong)?;
        parser.require_few_conjuncts()?;
        Ok(filter)
    }

    /// Splits a filter at each `and`.
    pub(crate) fn conjuncts(&self) -> Vec<&Self> {
        let (mut open, mut found) = (vec![self], Vec::new());
        while let Some(filter) = open.pop() {
            match filter {
                Self::And(left, right) => open.extend([&**right, &**left]),
                Self::Compare(..)
                | Self::Present(_)
                | Self::Holds(_)
                | Self::Or(..)
                | Self::Not(_) => found.push(filter),
            }
        }
        found
    }
}

impl AttributePath {
    /// Parses the path of an operation.
    pub(crate) fn parse(text: &str) -> Result<Self, ScimProblem> {
        let wrong = |why: String| {
            ScimProblem::new(ScimErrorKind::InvalidPath, format!("the path is wrong: {why}"))
        };
        let mut parser = FilterParser::new(text).map_err(wrong)?;
        let path = parser.path(0).map_err(wrong)?;
        parser.end().map_err(wrong)?;
        parser.require_few_conjuncts()?;
        Ok(path)
    }
}

impl fmt::Display for FilterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{}", serde_json::Value::from(text.as_str())),
            Self::Bool(is) => write!(f, "{is}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Null => f.write_str("null"),
        }
    }
}

impl fmt::Display for AttributePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schema, attribute, elements, sub_attribute } = self;
        if let Some(schema) = schema {
            write!(f, "{schema}:")?;
        }
        f.write_str(attribute)?;
        if let Some(filter) = elements {
            write!(f, "[{filter}]")?;
        }
        match sub_attribute {
            Some(sub) => write!(f, ".{sub}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ScimFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |f: &mut fmt::Formatter<'_>, filter: &Self, plain: bool| {
            if plain { write!(f, "{filter}") } else { write!(f, "({filter})") }
        };
        match self {
            Self::Compare(path, operator, value) => {
                write!(f, "{path} {} {value}", operator.word())
            }
            Self::Present(path) => write!(f, "{path} pr"),
            Self::Holds(path) => write!(f, "{path}"),
            // Parsing groups from the left, so that a right side of the same kind has parentheses.
            Self::And(left, right) => {
                side(f, left, !matches!(**left, Self::Or(..)))?;
                f.write_str(" and ")?;
                side(f, right, !matches!(**right, Self::Or(..) | Self::And(..)))
            }
            Self::Or(left, right) => {
                side(f, left, true)?;
                f.write_str(" or ")?;
                side(f, right, !matches!(**right, Self::Or(..)))
            }
            Self::Not(inner) => write!(f, "not ({inner})"),
        }
    }
}

/// Reads a filter from the left to the right. Each step takes what it has recognised.
struct FilterParser<'a> {
    rest: &'a str,
    /// Number of `and` so far, at any depth.
    joints: usize,
}

impl<'a> FilterParser<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        if text.len() > MAX_FILTER_BYTES {
            return Err(format!(
                "it has {} bytes, and at most {MAX_FILTER_BYTES} are read",
                text.len()
            ));
        }
        Ok(Self { rest: text.trim_ascii_start(), joints: 0 })
    }

    fn require_few_conjuncts(&self) -> Result<(), ScimProblem> {
        if self.joints < MAX_CONJUNCTS {
            return Ok(());
        }
        let why = format!(
            "the filter joins {} conditions with `and`, and at most {MAX_CONJUNCTS} are supported",
            self.joints + 1
        );
        Err(ScimProblem::new(ScimErrorKind::InvalidFilter, why))
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn end(&mut self) -> Result<(), String> {
        self.skip_space();
        if self.rest.is_empty() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        let found: String = self.rest.chars().take(24).collect();
        if found.is_empty() {
            format!("{wanted} is missing at its end")
        } else {
            format!("{wanted} is expected at `{found}`")
        }
    }

    /// Takes a sign.
    fn take(&mut self, sign: char) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes a word that ends before a space or a parenthesis, in any case.
    fn take_word(&mut self, word: &str) -> bool {
        let Some((head, rest)) = self.rest.split_at_checked(word.len()) else { return false };
        let ends = rest.is_empty()
            || rest.starts_with(|c: char| c.is_ascii_whitespace() || matches!(c, '(' | ')' | ']'));
        let fits = head.eq_ignore_ascii_case(word) && ends;
        if fits {
            self.rest = rest;
            self.skip_space();
        }
        fits
    }

    fn alternatives(&mut self, depth: u32) -> Result<ScimFilter, String> {
        let mut left = self.conjunction(depth)?;
        loop {
            self.skip_space();
            if !self.take_word("or") {
                return Ok(left);
            }
            left = ScimFilter::Or(Box::new(left), Box::new(self.conjunction(depth)?));
        }
    }

    fn conjunction(&mut self, depth: u32) -> Result<ScimFilter, String> {
        let mut left = self.term(depth)?;
        loop {
            self.skip_space();
            if !self.take_word("and") {
                return Ok(left);
            }
            self.joints += 1;
            left = ScimFilter::And(Box::new(left), Box::new(self.term(depth)?));
        }
    }

    fn term(&mut self, depth: u32) -> Result<ScimFilter, String> {
        if depth >= MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH}"));
        }
        self.skip_space();
        // An attribute could have the name `not`.
        let start = self.rest;
        if self.take_word("not") && self.take('(') {
            return Ok(ScimFilter::Not(Box::new(self.in_parentheses(depth)?)));
        }
        self.rest = start;
        if self.take('(') {
            return self.in_parentheses(depth);
        }
        let path = self.path(depth)?;
        self.skip_space();
        if self.take_word("pr") {
            return Ok(ScimFilter::Present(path));
        }
        match CompareOperator::ALL.into_iter().find(|one| self.take_word(one.word())) {
            Some(operator) => Ok(ScimFilter::Compare(path, operator, self.value()?)),
            None if path.elements.is_some() && path.sub_attribute.is_none() => {
                Ok(ScimFilter::Holds(path))
            }
            None => Err(self.unexpected("an operator such as `eq`")),
        }
    }

    /// Reads up to the closing parenthesis.
    fn in_parentheses(&mut self, depth: u32) -> Result<ScimFilter, String> {
        let inner = self.alternatives(depth + 1)?;
        self.skip_space();
        if self.take(')') { Ok(inner) } else { Err(self.unexpected("`)`")) }
    }

    fn path(&mut self, depth: u32) -> Result<AttributePath, String> {
        let is_part =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '$' | '-' | '_' | '.' | ':');
        let length = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        let (schema, name) = match text.rsplit_once(':') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        if schema.is_some_and(|schema| !is_urn(schema)) {
            return Err(self.unexpected("the URN of a schema"));
        }
        let (attribute, sub) = match name.split_once('.') {
            Some((attribute, sub)) => (attribute, Some(sub)),
            None => (name, None),
        };
        if !is_name(attribute) || sub.is_some_and(|sub| !is_name(sub)) {
            return Err(self.unexpected("the name of an attribute"));
        }
        self.rest = rest;
        let mut path = AttributePath {
            schema: schema.map(str::to_owned),
            attribute: attribute.to_owned(),
            elements: None,
            sub_attribute: sub.map(str::to_owned),
        };
        if sub.is_none() && self.take('[') {
            path.elements = Some(Box::new(self.alternatives(depth + 1)?));
            self.skip_space();
            if !self.take(']') {
                return Err(self.unexpected("`]`"));
            }
            if self.take('.') {
                let end = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
                let (sub, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
                if !is_name(sub) {
                    return Err(self.unexpected("the name of a sub-attribute"));
                }
                path.sub_attribute = Some(sub.to_owned());
                self.rest = rest;
            }
        }
        Ok(path)
    }

    fn value(&mut self) -> Result<FilterValue, String> {
        for (word, value) in [
            ("true", FilterValue::Bool(true)),
            ("false", FilterValue::Bool(false)),
            ("null", FilterValue::Null),
        ] {
            if self.take_word(word) {
                return Ok(value);
            }
        }
        // Texts and numbers are those of JSON, and the rest of the filter follows them.
        let wrong = || self.unexpected("a value such as \"text\"");
        let (value, length) = if self.rest.starts_with('"') {
            let mut texts = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
            let text = texts.next().and_then(Result::ok).ok_or_else(wrong)?;
            (FilterValue::Text(text), texts.byte_offset())
        } else {
            let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
            let length = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
            let number = self.rest.get(..length).and_then(|text| serde_json::from_str(text).ok());
            (FilterValue::Number(number.ok_or_else(wrong)?), length)
        };
        self.rest = self.rest.get(length..).unwrap_or_default();
        Ok(value)
    }
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '$')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

fn is_urn(text: &str) -> bool {
    text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("urn:")) && text.len() > 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        "[a-zA-Z][a-zA-Z0-9_-]{0,6}"
    }

    fn value() -> impl Strategy<Value = FilterValue> {
        prop_oneof![
            any::<String>().prop_map(FilterValue::Text),
            any::<bool>().prop_map(FilterValue::Bool),
            any::<i64>().prop_map(|number| FilterValue::Number(number.into())),
            Just(FilterValue::Null),
        ]
    }

    fn plain_path() -> impl Strategy<Value = AttributePath> {
        let schema = prop_oneof![
            Just(None),
            Just(Some("urn:ietf:params:scim:schemas:core:2.0:User".to_owned()))
        ];
        (schema, name(), proptest::option::of(name())).prop_map(|(schema, attribute, sub)| {
            AttributePath { schema, attribute, elements: None, sub_attribute: sub }
        })
    }

    fn compare() -> impl Strategy<Value = ScimFilter> {
        let operator = (0..CompareOperator::ALL.len()).prop_map(|at| CompareOperator::ALL[at]);
        prop_oneof![
            (plain_path(), operator, value())
                .prop_map(|(path, operator, value)| ScimFilter::Compare(path, operator, value)),
            plain_path().prop_map(ScimFilter::Present),
        ]
    }

    /// Number of `and`, at any depth.
    fn joints(filter: &ScimFilter) -> usize {
        let within =
            |path: &AttributePath| path.elements.as_deref().map(joints).unwrap_or_default();
        match filter {
            ScimFilter::Compare(path, ..) | ScimFilter::Present(path) | ScimFilter::Holds(path) => {
                within(path)
            }
            ScimFilter::And(left, right) => 1 + joints(left) + joints(right),
            ScimFilter::Or(left, right) => joints(left) + joints(right),
            ScimFilter::Not(inner) => joints(inner),
        }
    }

    fn filter() -> impl Strategy<Value = ScimFilter> {
        compare().prop_recursive(5, 24, 2, |inner| {
            let boxed = (inner.clone().prop_map(Box::new), inner.clone().prop_map(Box::new));
            prop_oneof![
                boxed.clone().prop_map(|(left, right)| ScimFilter::And(left, right)),
                boxed.prop_map(|(left, right)| ScimFilter::Or(left, right)),
                inner.clone().prop_map(|inner| ScimFilter::Not(Box::new(inner))),
                (plain_path(), inner).prop_map(|(path, inner)| {
                    let elements = Some(Box::new(inner));
                    ScimFilter::Holds(AttributePath { elements, sub_attribute: None, ..path })
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_printed_filter_is_parsed_to_the_same(filter in filter()) {
            let text = filter.to_string();
            let parsed = ScimFilter::parse(&text);
            if text.len() > MAX_FILTER_BYTES || joints(&filter) >= MAX_CONJUNCTS {
                prop_assert_eq!(parsed.unwrap_err().kind, Some(ScimErrorKind::InvalidFilter));
            } else {
                prop_assert_eq!(parsed.unwrap(), filter, "{}", text);
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = ScimFilter::parse(&text);
            let _ = AttributePath::parse(&text);
        }

        #[test]
        fn any_text_of_signs_is_parsed_or_refused(text in "[a-b \\[\\]().\"\\\\:eqornotad]{0,60}") {
            let _ = ScimFilter::parse(&text);
            let _ = AttributePath::parse(&text);
        }
    }

    #[test]
    fn filters_of_identity_providers_are_read() {
        for (text, printed) in [
            (r#"userName eq "anna@example.com""#, None),
            (r#"userName EQ "a\"b""#, Some(r#"userName eq "a\"b""#)),
            (r#"emails[type eq "work"].value eq "a@b.c""#, None),
            (r#"emails[type eq "work" and primary eq true]"#, None),
            (r#"id eq "x" and members eq "y""#, None),
            (r#"urn:ietf:params:scim:schemas:core:2.0:User:userName eq "x""#, None),
            (r#"  not(active eq false)or a pr"#, Some("not (active eq false) or a pr")),
            (r#"(a eq 1 or b gt -2.5)and c eq null"#, Some("(a eq 1 or b gt -2.5) and c eq null")),
        ] {
            let filter = ScimFilter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(filter.to_string(), printed.unwrap_or(text));
        }
    }

    #[test]
    fn wrong_filters_are_refused_and_deep_ones_too() {
        let deep = format!("{}a pr{}", "(".repeat(40), ")".repeat(40));
        let nested = format!("{}x pr", "a[".repeat(40));
        let long = format!("a eq \"{}\"", "x".repeat(MAX_FILTER_BYTES));
        for text in [
            "",
            "a",
            "a eq",
            "a eq x",
            "a eq \"x",
            "a eq \"x\" and",
            "a is 1",
            "eq \"x\"",
            "a eq [1]",
            "a eq \"x\" b eq \"y\"",
            "(a pr",
            "a[b pr",
            "a[b pr].",
            "a..b pr",
            "not a pr",
            "x:a pr",
            &deep,
            &nested,
            &long,
        ] {
            let error = ScimFilter::parse(text).unwrap_err();
            assert_eq!(error.kind, Some(ScimErrorKind::InvalidFilter), "{text}");
        }
        let error = AttributePath::parse("members[value eq \"x\"").unwrap_err();
        assert_eq!(error.kind, Some(ScimErrorKind::InvalidPath));
    }
}
