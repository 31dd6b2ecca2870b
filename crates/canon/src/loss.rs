//! Losses: content that a translation could not carry.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The most losses of one call that are named. The rest are counted: field names come from the
/// caller, who may send hundreds of thousands of them.
pub const MAX_NAMED_LOSSES: usize = 50;
/// The longest name of a loss; a longer one is cut.
pub const MAX_LOSS_NAME_CHARS: usize = 100;

/// One item that the target format cannot express.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// Path of the lost item in the canonical model: `sampling.top_k`.
    pub path: String,
    /// Reason, in one short sentence.
    pub reason: String,
    /// The number of losses this one stands for without naming them; zero for a named loss.
    unnamed: u64,
    /// Hash of the whole name, which tells names apart whose beginnings are equal.
    name_hash: u64,
}

impl Loss {
    /// Creates a loss with its reason.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        let path = what.into();
        Self { name_hash: hash_of(&path), path, reason: why.into(), unnamed: 0 }
    }

    /// The losses beyond the ones that are named.
    fn more(unnamed: u64) -> Self {
        Self {
            path: format!("and {unnamed} more"),
            reason: format!("only the first {MAX_NAMED_LOSSES} are named"),
            unnamed,
            name_hash: 0,
        }
    }

    /// True if this stands for losses that are only counted.
    pub const fn is_count(&self) -> bool {
        self.unnamed > 0
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// A translated value and the losses of its translation.
pub type Lossy<T> = (T, Vec<Loss>);

/// Set of losses of one translation, in the order they were found. The first
/// [`MAX_NAMED_LOSSES`] are named, each once; the others are counted.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    named: Vec<Loss>,
    /// Hashes of the names that are only counted. A collision makes the count too low by one, nothing
    /// else. `None` in nearly all sets.
    counted: Option<HashSet<u64>>,
    unnamed: u64,
}

impl Losses {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a loss, unless its path is already listed.
    pub fn add(&mut self, what: &str, why: &str) {
        let name_hash = hash_of(what);
        self.add_with(name_hash, || Loss {
            path: shortened(what),
            reason: why.to_owned(),
            unnamed: 0,
            name_hash,
        });
    }

    fn add_with(&mut self, name_hash: u64, loss: impl FnOnce() -> Loss) {
        // Nearly all translations have few losses, which are compared without a table.
        if self.named.iter().any(|known| known.name_hash == name_hash) {
            return;
        }
        if self.named.len() < MAX_NAMED_LOSSES {
            self.named.push(loss());
        } else if self.counted.get_or_insert_default().insert(name_hash) {
            self.unnamed += 1;
        }
    }

    /// Adds a loss if the condition holds.
    pub fn add_if(&mut self, lost: bool, what: &str, why: &str) {
        if lost {
            self.add(what, why);
        }
    }

    /// Returns the named losses, followed by one that counts the others, if there are any.
    pub fn into_vec(self) -> Vec<Loss> {
        let rest = self.rest();
        let mut all = self.named;
        all.extend(rest);
        all
    }

    /// Returns a loss that counts the ones beyond the named, if there are any.
    pub fn rest(&self) -> Option<Loss> {
        (self.unnamed > 0).then(|| Loss::more(self.unnamed))
    }

    /// Returns true if nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.unnamed == 0
    }

    /// Returns an iterator over the named losses.
    pub fn iter(&self) -> impl Iterator<Item = &Loss> {
        self.named.iter()
    }
}

impl PartialEq for Losses {
    fn eq(&self, other: &Self) -> bool {
        self.named == other.named && self.unnamed == other.unnamed
    }
}

impl Eq for Losses {}

impl Extend<Loss> for Losses {
    fn extend<T: IntoIterator<Item = Loss>>(&mut self, more: T) {
        for loss in more {
            if loss.is_count() {
                self.unnamed = self.unnamed.saturating_add(loss.unnamed);
            } else {
                // A name that is cut already keeps the hash of the whole one.
                self.add_with(loss.name_hash, || Loss { path: shortened(&loss.path), ..loss });
            }
        }
    }
}

impl FromIterator<Loss> for Losses {
    fn from_iter<T: IntoIterator<Item = Loss>>(all: T) -> Self {
        let mut losses = Self::new();
        losses.extend(all);
        losses
    }
}

fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn shortened(name: &str) -> String {
    if name.chars().nth(MAX_LOSS_NAME_CHARS).is_none() {
        return name.to_owned();
    }
    name.chars().take(MAX_LOSS_NAME_CHARS - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_is_named_once_in_its_order() {
        let mut losses = Losses::new();
        for what in ["b", "a", "b"] {
            losses.add(what, "why");
        }
        losses.extend([Loss::new("a", "again"), Loss::new("c", "why")]);
        let names: Vec<String> = losses.into_vec().into_iter().map(|loss| loss.path).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }

    #[test]
    fn many_losses_are_counted_and_counts_add_up() {
        let mut losses = Losses::new();
        for _ in 0..2 {
            for number in 0..300_000 {
                losses.add(&format!("request.f{number}"), "why");
            }
        }
        let all = losses.into_vec();
        assert_eq!(all.len(), MAX_NAMED_LOSSES + 1);
        assert_eq!(all.last().map(|loss| loss.path.as_str()), Some("and 299950 more"));
        let mut sum: Losses = all.iter().cloned().collect();
        sum.extend([Loss::new("another", "why")]);
        let sum = sum.into_vec();
        assert_eq!(sum.last().map(|loss| loss.path.as_str()), Some("and 299951 more"));
        assert_eq!(sum.get(..MAX_NAMED_LOSSES), all.get(..MAX_NAMED_LOSSES));
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let mut losses = Losses::new();
        for end in ["x", "y"] {
            losses.add(&format!("{}{end}", "\u{fc}".repeat(1_000)), "why");
        }
        let all = losses.into_vec();
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|loss| loss.path.chars().count() == MAX_LOSS_NAME_CHARS));
        let again: Losses = all.iter().cloned().collect();
        assert_eq!(again.into_vec(), all, "also when they are collected again");
    }
}
