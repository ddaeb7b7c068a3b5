//! The target `trace_file` of `kumihimo_fuzzed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (kumihimo_fuzzed::target("trace_file").run)(data));
