//! What a translation could not carry.

use std::fmt;

/// One thing the target format has no place for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// What was lost, as a path in canon's words: `sampling.top_k`.
    pub what: String,
    /// Why, in one short sentence.
    pub why: String,
}

impl Loss {
    /// A loss and its reason.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// A translated value together with everything that did not make it.
pub type Lossy<T> = (T, Vec<Loss>);

/// The list a translation writes its losses on; each is named once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// No loss so far.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Notes a loss, unless the same thing was noted before.
    pub fn add(&mut self, what: &str, why: &str) {
        if !self.0.iter().any(|loss| loss.what == what) {
            self.0.push(Loss::new(what, why));
        }
    }

    /// Notes a loss when the condition holds.
    pub fn add_if(&mut self, lost: bool, what: &str, why: &str) {
        if lost {
            self.add(what, why);
        }
    }

    /// The list.
    pub fn into_vec(self) -> Vec<Loss> {
        self.0
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every loss noted so far.
    pub fn iter(&self) -> impl Iterator<Item = &Loss> {
        self.0.iter()
    }
}

impl Extend<Loss> for Losses {
    fn extend<T: IntoIterator<Item = Loss>>(&mut self, more: T) {
        for loss in more {
            self.add(&loss.what, &loss.why);
        }
    }
}
