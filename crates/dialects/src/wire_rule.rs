//! Rules of fields in descriptions of JSON objects.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use crate::text::BorrowedText;

/// A rule that a value violates, and the path of the value inside the described object.
#[derive(Debug)]
pub(crate) struct FieldProblem {
    path: Cow<'static, str>,
    why: Cow<'static, str>,
}

/// Marks an error text that begins with the path of a field. No text of a parser begins with it.
const PROBLEM_MARK: char = '\u{1}';

impl FieldProblem {
    /// Creates a problem of a field. An empty path is the object itself.
    pub(crate) fn new(
        path: impl Into<Cow<'static, str>>,
        why: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { path: path.into(), why: why.into() }
    }

    /// Splits the text of an error into path and reason; `None` if the parser wrote it.
    pub(crate) fn split_text(text: &str) -> Option<(&str, &str)> {
        text.strip_prefix(PROBLEM_MARK)?.split_once(PROBLEM_MARK)
    }

    /// Returns the problem as seen from the object around.
    #[must_use]
    pub(crate) fn inside(self, outer: &str) -> Self {
        let Self { path, why } = self;
        Self { path: Cow::Owned(join_path(outer, &path)), why }
    }

    /// Returns the error of a request that cannot be written. Its reason does not begin with the path.
    pub(crate) fn into_unwritable(self) -> canon::ApiError {
        canon::ApiError::invalid(self.path, self.why)
    }

    /// Returns the error of a request whose root this problem was found in.
    pub(crate) fn into_error(self) -> canon::ApiError {
        let Self { path, why } = self;
        let field = if path.is_empty() { "the body".to_owned() } else { format!("`{path}`") };
        canon::ApiError::invalid(path, format!("{field} {why}"))
    }
}

/// Joins two JSON paths.
pub(crate) fn join_path(outer: &str, inner: &str) -> String {
    match (outer, inner) {
        (outer, "") => outer.to_owned(),
        ("", inner) => inner.to_owned(),
        (outer, inner) if inner.starts_with('[') => format!("{outer}{inner}"),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A caller's own key may hold the mark.
        let plain = |text: &str| text.replace(PROBLEM_MARK, "\u{fffd}");
        let Self { path, why } = self;
        write!(f, "{PROBLEM_MARK}{}{PROBLEM_MARK}{}", plain(path), plain(why))
    }
}

/// Result of a rule.
pub(crate) type RuleResult = Result<(), FieldProblem>;

/// Refuses a value.
pub(crate) fn refuse(why: impl Into<Cow<'static, str>>) -> RuleResult {
    Err(FieldProblem::new("", why))
}

/// Refuses a value if there is a reason.
pub(crate) fn refuse_for(why: Option<&'static str>) -> RuleResult {
    why.map_or(Ok(()), refuse)
}

/// Refuses a value if a condition holds.
pub(crate) fn refuse_if(is_wrong: bool, why: impl FnOnce() -> String) -> RuleResult {
    if is_wrong { refuse(why()) } else { Ok(()) }
}

/// Refuses a value unless a condition holds.
pub(crate) fn ensure(holds: bool, why: &'static str) -> RuleResult {
    if holds { Ok(()) } else { refuse(why) }
}

/// Refuses a field of a value unless a condition holds.
pub(crate) fn ensure_at(holds: bool, path: &str, why: &'static str) -> RuleResult {
    ensure(holds, why).map_err(|problem| problem.inside(path))
}

/// Refuses an object without a field.
pub(crate) fn require(field: &'static str, is_present: bool) -> RuleResult {
    ensure_at(is_present, field, "is required")
}

/// Refuses a number outside of a range, bounds included.
pub(crate) fn between<N: PartialOrd + fmt::Display>(low: N, high: N) -> impl Fn(&N) -> RuleResult {
    move |value| {
        refuse_if(!(&low..=&high).contains(&value), || format!("must be between {low} and {high}"))
    }
}

/// Refuses a word that is not in the list.
pub(crate) fn one_of<'a>(
    words: &'static [&'static str],
) -> impl Fn(&BorrowedText<'a>) -> RuleResult {
    move |word| {
        refuse_if(!(words.contains(&&*word.0)), || {
            format!("must be one of `{}`", words.join("`, `"))
        })
    }
}

/// Refuses a text that is too long.
pub(crate) fn max_bytes<'a>(most: usize) -> impl Fn(&BorrowedText<'a>) -> RuleResult {
    move |text| refuse_if(text.0.len() > most, || format!("must be at most {most} bytes"))
}

/// Refuses a list with a word that is not in the other list.
pub(crate) fn each_one_of<'a, L: Deref<Target = [BorrowedText<'a>]>>(
    words: &'static [&'static str],
) -> impl Fn(&L) -> RuleResult {
    move |list| {
        let check = one_of(words);
        let mut items = list.iter().enumerate();
        items.try_for_each(|(at, word)| check(word).map_err(|e| e.inside(&format!("[{at}]"))))
    }
}

/// Refuses a text for which a check returns a reason.
pub(crate) fn passes<'a>(
    check: fn(&str) -> Option<&'static str>,
) -> impl Fn(&BorrowedText<'a>) -> RuleResult {
    move |text| refuse_for(check(text))
}

/// Refuses an empty text.
pub(crate) fn not_empty(text: &BorrowedText<'_>) -> RuleResult {
    if text.is_empty() { refuse("is required") } else { Ok(()) }
}
