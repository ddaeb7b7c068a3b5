//! Builds the rivals on demand.

use std::path::{Path, PathBuf};
use std::process::Command;

use kumihimo_bench_kit::cargo;

use super::{Programs, Runtime, java};

/// Root of the repository from which `kumi-lab` was built.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("lab/kumi-lab is two directories below the root")
        .to_owned()
}

/// Paths of this program and, if requested, of the rivals in `lab/rivals`. A rival that cannot be
/// built is reported, and the others are still returned.
pub fn programs(with_rivals: bool, benches: &[&str]) -> Programs {
    let me = std::env::current_exe().map_err(|e| format!("own program: {e}"));
    let mut programs = Programs::from([(Runtime::Kumihimo, me)]);
    if with_rivals {
        for rival in Runtime::BUILT.into_iter().filter(|rival| is_of(*rival, benches)) {
            eprintln!("building rival {}", rival.name());
            let built = build(rival);
            if let Err(why) = &built {
                eprintln!("rival {} is missing: {why}", rival.name());
            }
            programs.insert(rival, built);
        }
    }
    programs
}

/// Benchmarks of threads alone, in which threads and fibers of more runtimes take part.
const THREADS: [&str; 7] = ["yield", "null-fork", "message", "sieve", "skynet", "mutex", "parked"];

/// Returns whether a rival takes part. Rivals that take minutes to build are built only for their
/// own benchmark.
fn is_of(rival: Runtime, benches: &[&str]) -> bool {
    match rival {
        Runtime::Axum => benches.contains(&"http"),
        Runtime::Boost | Runtime::Java => benches.iter().any(|bench| THREADS.contains(bench)),
        Runtime::May => {
            let serves = ["echo", "http"];
            benches.iter().any(|bench| THREADS.contains(bench) || serves.contains(bench))
        }
        Runtime::Rpc => benches.contains(&"rpc") || benches.contains(&"remote"),
        Runtime::Files => benches.contains(&"servers"),
        Runtime::Interposed => benches.contains(&"unwrapped"),
        Runtime::Std if benches.contains(&"unwrapped") => true,
        _ => {
            let others = ["remote", "rpc", "servers", "unwrapped", "run"];
            benches.iter().any(|bench| !others.contains(bench))
        }
    }
}

/// Target directory of a rival.
fn target(rival: Runtime) -> PathBuf {
    target_directory().join("rivals").join(rival.name())
}

/// Target directory of cargo.
pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// The program of a rival in Rust, if it is already built.
pub fn there(rival: Runtime) -> Option<PathBuf> {
    Some(by_cargo(rival)).filter(|program| program.is_file())
}

fn by_cargo(rival: Runtime) -> PathBuf {
    target(rival).join("release").join(format!("rival-{}", rival.name()))
}

fn build(rival: Runtime) -> Result<PathBuf, String> {
    let source = repository().join("lab/rivals").join(rival.name());
    let target = target(rival);
    if !source.is_dir() {
        return Err(format!(
            "{} is missing: `kumi bench` needs the repository it was built from",
            source.display()
        ));
    }
    if rival == Runtime::Go {
        let program = target.join("rival-go");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg(".").current_dir(&source);
        run(&mut go, "Go (`make bench` installs it)")?;
        return Ok(program);
    }
    if rival == Runtime::Java {
        return java::build(&source, &target);
    }
    let (compiler, sources, libraries): (_, &[&str], &[&str]) = match rival {
        Runtime::Floor => ("cc", &["main.c", "epoll.c", "uring.c"], &[]),
        Runtime::Linux => ("cc", &["main.c"], &[]),
        Runtime::Boost => {
            ("c++", &["main.cc"], &["-std=c++17", "-lboost_fiber", "-lboost_context", "-pthread"])
        }
        _ => ("", &[], &[]),
    };
    if !sources.is_empty() {
        std::fs::create_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
        let program = target.join(format!("rival-{}", rival.name()));
        let mut cc = Command::new(compiler);
        cc.args(["-O2", "-o"]).arg(&program).args(sources).args(libraries).current_dir(&source);
        run(&mut cc, &format!("{compiler}, a compiler,"))?;
        return Ok(program);
    }
    let mut cargo = cargo();
    cargo
        .args(["build", "--release", "--locked", "--quiet", "--target-dir"])
        .arg(&target)
        .current_dir(&source);
    run(&mut cargo, "cargo")?;
    Ok(by_cargo(rival))
}

fn run(command: &mut Command, what: &str) -> Result<(), String> {
    match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("{what} is not installed"))
        }
        Err(e) => Err(format!("{what}: {e}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let last: Vec<_> = complaint.lines().rev().take(3).collect();
            Err(format!("not built: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_reported_as_not_installed() {
        let error = run(&mut Command::new("/no/such/program"), "Go").unwrap_err();
        assert_eq!(error, "Go is not installed");
    }

    #[test]
    fn only_rivals_of_the_named_benchmarks_are_built() {
        let built =
            |benches: &[&str]| Runtime::BUILT.into_iter().filter(|r| is_of(*r, benches)).count();
        let counts = [
            &["rpc"][..],
            &["servers"],
            &["unwrapped"],
            &["yield"],
            &["yield", "rpc", "servers"],
            &["http"],
            &["remote"],
        ]
        .map(built);
        assert_eq!(counts, [1, 1, 2, 8, 10, 7, 1]);
    }

    #[test]
    fn sources_of_every_rival_exist() {
        for rival in Runtime::BUILT {
            assert!(repository().join("lab/rivals").join(rival.name()).is_dir());
        }
    }
}
