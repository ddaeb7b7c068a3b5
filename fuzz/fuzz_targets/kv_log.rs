//! The target `kv_log` of `kumihimo_fuzzed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (kumihimo_fuzzed::target("kv_log").run)(data));
