//! The frame cutter: where the bytes are split on their way must not matter.

#![no_main]

#[path = "../../crates/dialects/tests/laws/entry.rs"]
#[allow(dead_code, reason = "each target uses its own way in")]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((at, bytes)) = input.split_first() {
        entry::cut(bytes, usize::from(*at));
    }
});
