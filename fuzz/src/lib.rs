//! Fuzz targets for every parser that reads bytes of strangers.
//!
//! Each target is a function over bytes. It must not panic, and it checks what has to hold for any
//! input, such as that the split of a stream into reads does not change the result. `cargo fuzz`
//! drives the functions with libFuzzer; `tests/fuzz.rs` drives them on the stable compiler.

#[path = "../../crates/dialects/tests/laws/entry.rs"]
#[allow(dead_code, reason = "the tests of `dialects` use more of it than the targets do")]
mod entry;
pub mod mutate;
pub mod targets;
