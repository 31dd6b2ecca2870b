//! Losses: content that a translation could not carry.

use std::fmt;

/// One item that the target format cannot express.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// Path of the lost item in the canonical model: `sampling.top_k`.
    pub what: String,
    /// Reason, in one short sentence.
    pub why: String,
}

impl Loss {
    /// Creates a loss with its reason.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// A translated value and the losses of its translation.
pub type Lossy<T> = (T, Vec<Loss>);

/// List of losses of one translation. Each path occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a loss, unless its path is already listed.
    pub fn add(&mut self, what: &str, why: &str) {
        if !self.0.iter().any(|loss| loss.what == what) {
            self.0.push(Loss::new(what, why));
        }
    }

    /// Adds a loss if the condition holds.
    pub fn add_if(&mut self, lost: bool, what: &str, why: &str) {
        if lost {
            self.add(what, why);
        }
    }

    /// Returns the losses as a vector.
    pub fn into_vec(self) -> Vec<Loss> {
        self.0
    }

    /// Returns true if nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an iterator over the losses.
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
