//! The preloaded library redirects commands' requests for the time to the clock server.

use std::fs;
use std::process::Command;

use kumihimo_bench_files::shim;

#[test]
fn command_reads_its_time_from_the_clock_file() {
    let place = std::env::temp_dir().join(format!("kumi-bench-clock-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    let library = shim(&place).unwrap();
    // A file with a constant time stands in for the clock: 2001-09-09.
    let now = place.join("now");
    fs::write(&now, "1000000000123456789\n").unwrap();
    let date = |clock: &std::path::Path| {
        let mut command = Command::new("date");
        let output = command
            .arg("+%s.%N")
            .env("LD_PRELOAD", &library)
            .env("KUMI_CLOCK", clock)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(date(&now), "1000000000.123456789");
    // Without a clock file, the time is the kernel's.
    let seconds: f64 = date(&place.join("none")).parse().unwrap();
    assert!(seconds > 1.7e9, "{seconds}");
    fs::remove_dir_all(&place).unwrap();
}
