//! The laws of translation, over the fixtures of every format and over every ordered pair.
//!
//! `one` holds what is true within a format, `pairs` what is true between two, `seals` that every
//! seal comes home, `random` the same for conversations nobody wrote, `bytes` that nothing a
//! stranger sends makes us panic, `losses` what is written down of all this in `docs/losses.md`.
//! A new format with fixtures is tested by adding nothing.
//!
//! `BLESS=1 cargo test -p dialects --test laws` writes the golden lists and the document anew.

#![cfg(test)]

mod bytes;
mod cases;
mod clients;
mod entry;
mod losses;
mod one;
mod pairs;
mod random;
mod scaling;
mod seals;
