//! The target `event_stream` for libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::targets::event_stream(input));
