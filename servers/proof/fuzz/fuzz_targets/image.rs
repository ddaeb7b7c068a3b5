#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kumihimo_proof::fuzz::image(data));
