//! Command lines of the contenders. For all servers, the kernel caches neither entries nor
//! attributes.

use std::path::Path;
use std::process::Command;

use super::Bench;
use crate::bench::contender::installed::installed;
use crate::bench::contender::{Contender, Runtime, Trouble};

/// Settings of a load for Kumihimo's server, beside its organisation.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Size of the block cache.
    pub cache: &'static str,
    /// Delay before each access to the store's disk.
    pub delay: &'static str,
    /// Name of a gate at which the clock is served as well.
    pub gate: Option<&'static str>,
}

/// The command of a server. `at` is the mount point of the files, `clock` that of the time.
pub fn command(
    bench: &Bench,
    contender: &Contender,
    setting: Setting,
    at: &Path,
    clock: &Path,
    cores: usize,
) -> Result<Command, Trouble> {
    match (contender.runtime, contender.value("server").unwrap_or_default()) {
        (Runtime::Kumihimo, _) => ours(bench, contender, setting, at, clock),
        (_, "memory") => {
            let mut command = contender.command(bench.programs, super::BENCH, cores)?;
            command
                .arg(format!("from={}", bench.stores.files().display()))
                .arg(format!("at={}", at.display()));
            Ok(command)
        }
        (_, "memfs_ll") => {
            let mut command = Command::new(installed(
                "memfs_ll",
                "an example of libfuse 3.17 and later; on the PATH it takes part",
            )?);
            command.args(["-f", "-o", "clone_fd"]).arg(at);
            Ok(command)
        }
        // e2fsprogs: one lock for everything. The kernel checks permissions in this mount only with
        // default_permissions, and then also requests the directory's attributes for each path, as
        // for all other servers here. Without the option, a stat takes two requests instead of
        // three.
        (_, "fuse2fs") => {
            let mut command = Command::new(installed("fuse2fs", "apt-get install fuse2fs")?);
            command.args([
                "-f",
                "-o",
                "attr_timeout=0,entry_timeout=0,negative_timeout=0,default_permissions",
            ]);
            command.arg(bench.stores.image("fuse2fs")?).arg(at);
            Ok(command)
        }
        // Multi-threaded only with this option.
        (_, "bindfs") => {
            let mut command = Command::new(installed("bindfs", "apt-get install bindfs")?);
            command.args([
                "-f",
                "--multithreaded",
                "-o",
                "attr_timeout=0,entry_timeout=0,negative_timeout=0",
            ]);
            command.arg(bench.stores.files()).arg(at);
            Ok(command)
        }
        (_, "mergerfs") => {
            let mut command = Command::new(installed("mergerfs", "apt-get install mergerfs")?);
            command.args([
                "-f",
                "-o",
                "cache.files=off,cache.attr=0,cache.entry=0,cache.negative_entry=0",
            ]);
            command.arg(bench.stores.files()).arg(at);
            Ok(command)
        }
        (_, other) => Err(format!("server={other}: no such server").into()),
    }
}

/// `kumi mount` in the foreground.
fn ours(
    bench: &Bench,
    contender: &Contender,
    setting: Setting,
    at: &Path,
    clock: &Path,
) -> Result<Command, Trouble> {
    let program = bench
        .programs
        .get(&Runtime::Kumihimo)
        .ok_or("not asked for")?
        .as_ref()
        .map_err(String::clone)?;
    let said = |key| contender.value(key).unwrap_or_default();
    let mut command = Command::new(program);
    // Through /dev/fuse like the others, because io_uring for FUSE depends on a setting that is off
    // on most machines.
    command.args([
        "mount",
        "-f",
        "--timeout",
        "0",
        "--uring=off",
        "--organisation",
        said("organisation"),
    ]);
    if said("threads") != "1" {
        command.args(["--threads", said("threads")]);
    }
    command.args(["--store", said("store")]).arg("--clock").arg(clock);
    if let Some(gate) = setting.gate {
        command.args(["--gate", gate]);
    }
    let store = match said("store") {
        "ext2" => {
            command.args(["--cache", setting.cache, "--delay", setting.delay]);
            bench.stores.image("kumihimo")?
        }
        _ => bench.stores.files(),
    };
    command.arg(store).arg(at).env("KUMI_DIR", bench.stores.directory());
    Ok(command)
}
