//! Properties of the translations, tested with the fixtures of every format and every ordered pair
//! of formats.
//!
//! `one` tests a single format, `pairs` two formats, `seals` that every signature returns to its
//! provider, `random` generated conversations, `bytes` that malformed input never panics,
//! `cuts` that a stream may come in any pieces, `error_paths` that errors name the caller's own field,
//! `holes` that no turn is invented, `fates` that every field is carried or told, except those in `silent_fields`, `shapes` that a stream and
//! a whole reply have the same JSON, and `losses` writes `docs/losses.md`. A new format with fixtures
//! is tested without further code.
//!
//! `BLESS=1 cargo test -p dialects --test laws` rewrites the golden lists and the document.

#![cfg(test)]

mod broken_streams;
mod bytes;
mod cases;
mod client_tools;
mod clients;
mod completed;
mod cuts;
mod endings;
mod entry;
mod error_paths;
mod fates;
mod holes;
mod lane_tools;
mod losses;
mod mappings;
mod one;
mod pairs;
mod patched_fields;
mod random;
mod repeated_ids;
mod screens;
mod seals;
mod shapes;
mod silent_fields;
