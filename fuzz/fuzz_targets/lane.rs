//! The target `lane` of `kumihimo_fuzzed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (kumihimo_fuzzed::target("lane").run)(data));
