//! Everything together under faults: the key-value server, a mounted directory, gates and the
//! arbiter, while processes are killed, stopped and without descriptors or memory, the file system
//! is full, and logs and files are cut off. The data are checked after each crash and at the end.
//!
//! One seed determines all choices, and the kernel's scheduling the rest: `make soak SEED=number`.

mod files;
mod gates;
mod ground;
mod keyvalue;
mod service;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use kumihimo_tests::{Random, rounds, skip};

use ground::Ground;

const TEST: &str = "data_survive_random_faults_of_everything";

/// Time after which something hangs that no fault disturbs.
const PATIENCE: Duration = Duration::from_secs(120);

fn kumi() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kumi"))
}

#[test]
fn data_survive_random_faults_of_everything() {
    if let Ok(side) = std::env::var("KUMI_TEST_SIDE") {
        return if side == "guard" { ground::guard() } else { gates::play(&side) };
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skip(TEST, "needs root and /dev/fuse");
    }
    for round in rounds(TEST) {
        round_of_faults(round.number, round.random);
    }
}

/// This program, as another part of the test.
fn again(side: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", TEST, "--nocapture", "--test-threads=1"]);
    command.env("KUMI_TEST_CHILD", TEST).env("KUMI_TEST_SIDE", side);
    command
}

fn round_of_faults(number: u64, mut random: Random) {
    let ground = Ground::new(number, again("guard"));
    let (place, small) = (&*ground.place, &*ground.small);
    let always = random.one_in(2);
    let kv = keyvalue::service(kumi(), place, small, always);
    let mounted = files::service(kumi(), place, small);
    let peers = gates::services(place, &mut random);
    for service in [&kv, &mounted].into_iter().chain(&peers) {
        service.start().unwrap_or_else(|(status, said)| {
            panic!("{} does not start: {status}\n{said}", service.name)
        });
    }
    let mut data = keyvalue::Model::new(place, small, always);
    let mut tree = files::Model::new(place, small);
    let (disturbed, worked) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut of_data, mut of_tree, filling) = (random.split(), random.split(), random.split());
    thread::scope(|scope| {
        let workers = [
            ("the client of kv", scope.spawn(|| data.run(&kv, &mut of_data, &worked))),
            ("the client of the mount", scope.spawn(|| tree.run(&mounted, &mut of_tree, &worked))),
            ("the start of peers", scope.spawn(|| gates::revive(&peers, &worked))),
        ];
        let over = &disturbed;
        let mut faults = vec![scope.spawn(|| files::fill(small, filling, over))];
        let all = [(&kv, &keyvalue::FAULTS[..]), (&mounted, &files::FAULTS[..])];
        let all = all.into_iter().chain(peers.iter().map(|peer| (peer, &gates::FAULTS[..])));
        for (service, kinds) in all {
            let own = random.split();
            faults.push(scope.spawn(move || service::disturb(service, own, over, kinds)));
        }
        // Ends early if anything has failed.
        for _ in 0..40 + random.below(60) {
            thread::sleep(Duration::from_millis(100));
            if workers.iter().any(|(_, worker)| worker.is_finished()) {
                break;
            }
        }
        disturbed.store(true, SeqCst);
        let joined: Vec<_> = faults.into_iter().map(|one| one.join()).collect();
        worked.store(true, SeqCst);
        assert!(joined.iter().all(Result::is_ok), "a fault could not be provoked");
        await_workers(&workers, place);
    });
    let died = kv.revive();
    data.compare(&kv, died && !always);
    kv.end_in_order();
    data.damage(kumi(), &kv, &mut random);
    kv.start().expect("it starts");
    data.compare(&kv, false);
    tree.finish(&mounted);
    gates::check(place, kumi(), &peers);
    println!(
        "round {number}: {} changes acknowledged ({}), {} operations on files succeeded",
        data.acknowledged,
        if always { "always" } else { "everysec" },
        tree.succeeded
    );
}

/// Waits until the workers have ended, which no fault disturbs any more.
///
/// # Panics
/// If a worker hangs, with its name. All processes have been ended then, so that it does not hang
/// any longer.
fn await_workers(workers: &[(&str, ScopedJoinHandle<'_, ()>)], place: &Path) {
    let begun = Instant::now();
    while workers.iter().any(|(_, worker)| !worker.is_finished()) {
        if begun.elapsed() > PATIENCE {
            let hang: Vec<_> =
                workers.iter().filter(|one| !one.1.is_finished()).map(|one| one.0).collect();
            ground::end_processes(place);
            panic!("without faults, {} hang for {PATIENCE:?}", hang.join(" and "));
        }
        thread::sleep(Duration::from_millis(20));
    }
}
