//! The target `control_requests` of `kumihimo_fuzzed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (kumihimo_fuzzed::target("control_requests").run)(data));
