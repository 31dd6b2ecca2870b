//! The target `http_answers` for libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::targets::http_answers(input));
