//! A stream of a provider, watched on its way and told to callers of every format.

#![no_main]

#[path = "../../crates/dialects/tests/laws/entry.rs"]
#[allow(dead_code, reason = "each target uses its own way in")]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((which, body)) = input.split_first()
        && let Some(dialect) = dialects::all().nth(usize::from(*which) % 4)
    {
        entry::stream(dialect, body);
    }
});
