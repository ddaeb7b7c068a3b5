//! Gates of a process whose run-time directory is full, removed or closed.

use kumihimo::gate::{ErrorKind, Gate};
use kumihimo_tests::skip;

use crate::parts::play;

#[test]
fn full_runtime_directory_refuses_new_gates() {
    const NAME: &str = "bad_directory::full_runtime_directory_refuses_new_gates";
    let alone = || {
        let folder = std::env::var("KUMI_DIR").expect("it is set");
        let folder = std::ffi::CString::new(folder).expect("a path");
        // SAFETY: strings, and a private mount namespace; the process has only one kernel thread at
        // this point.
        let mounted = unsafe {
            libc::geteuid() == 0
                && libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    c"none".as_ptr(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) == 0
                && libc::mount(
                    c"full".as_ptr(),
                    folder.as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    c"nr_inodes=40,mode=0700".as_ptr().cast(),
                ) == 0
        };
        if !mounted {
            return skip(NAME, "needs root to mount a file system");
        }
        let mut gates = Vec::new();
        let error = loop {
            match Gate::serve(&format!("gate {}", gates.len()), |n: u32| n) {
                Ok(gate) => gates.push(gate),
                Err(error) => break error,
            }
            assert!(gates.len() < 40);
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        // Existing gates are served. The memory of lanes is not on that file system.
        let first = Gate::<u32, u32>::connect("gate 0").expect("it is there");
        assert_eq!(first.call(&3).expect("a reply"), 3);
        drop(gates.pop());
        gates.push(Gate::serve("another", |n: u32| n).expect("there is room again"));
    };
    play(NAME, &[("alone", &alone)]);
}

/// The error of serving a gate.
fn refused(name: &str) -> String {
    let error = Gate::serve(name, |n: u32| n).expect_err("an unusable directory");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    error.to_string()
}

#[test]
fn removed_runtime_directory_refuses_new_gates() {
    let alone = || {
        let folder = std::env::var("KUMI_DIR").expect("it is set");
        let _one = Gate::serve("one", |n: u32| n + 1).expect("it serves");
        let one = Gate::<u32, u32>::connect("one").expect("it is there");
        std::fs::remove_dir_all(&folder).expect("it is there");
        let said = refused("two");
        assert!(
            said.contains("gate \"two\"") && said.contains(&folder) && said.contains("was removed"),
            "{said}"
        );
        assert_eq!(one.call(&1).expect("what is linked goes on"), 2);
        assert_eq!(
            Gate::<u32, u32>::connect("one").expect_err("it is lost").kind(),
            ErrorKind::NotFound
        );
    };
    play("bad_directory::removed_runtime_directory_refuses_new_gates", &[("alone", &alone)]);
}

#[test]
fn closed_runtime_directory_refuses_new_gates() {
    let alone = || {
        let folder = std::env::var("KUMI_DIR").expect("it is set");
        let _one = Gate::serve("one", |n: u32| n + 1).expect("it serves");
        for fd in std::fs::read_dir("/proc/self/fd").expect("/proc").flatten() {
            if std::fs::read_link(fd.path()).is_ok_and(|to| to == std::path::Path::new(&folder)) {
                let fd = fd.file_name().to_string_lossy().parse().expect("a number");
                // SAFETY: none. The effect on the owner of the descriptor is under test.
                unsafe { libc::close(fd) };
            }
        }
        let said = refused("two");
        assert!(
            said.contains("gate \"two\"") && said.contains(&folder) && said.contains("was closed"),
            "{said}"
        );
        let one = Gate::<u32, u32>::connect("one").expect("it is found by its path");
        assert_eq!(one.call(&1).expect("a reply"), 2);
    };
    play("bad_directory::closed_runtime_directory_refuses_new_gates", &[("alone", &alone)]);
}
