//! C and C++ libraries with thread-local variables, loaded before and after a block is built.
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    target_env = "gnu"
))]

mod harness;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::{Micro, again, pause};

const STACK: usize = 256 << 10;

/// The C or C++ compiler for the programs of this architecture.
fn compiler(is_cpp: bool) -> String {
    let (variable, name) = if is_cpp { ("CXX", "c++") } else { ("CC", "cc") };
    std::env::var(variable).unwrap_or_else(|_| name.into())
}

/// Compiles a source of tests/native to a shared library called `name`, unless the library is
/// newer.
fn build(source: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native").join(source);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let out = dir.join(name);
    let made = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    if made(&out) > made(&source) {
        return out;
    }
    let compiler = compiler(source.extension().is_some_and(|e| e == "cc"));
    // Several processes may build at the same time. Each writes its own file, and the rename is
    // atomic.
    let own = dir.join(format!("{name}.{}", std::process::id()));
    let status = Command::new(compiler)
        .args(["-O1", "-fPIC", "-shared", "-o"])
        .args([&own, &source])
        .status()
        .expect("a C and C++ compiler (cc, c++)");
    assert!(status.success());
    std::fs::rename(&own, &out).expect("the library in its place");
    out
}

#[derive(Clone, Copy)]
struct Library(usize);

impl Library {
    fn open(path: &Path) -> Library {
        Library::try_open(path).unwrap_or_else(|e| panic!("dlopen {}: {e}", path.display()))
    }

    fn try_open(path: &Path) -> Result<Library, String> {
        let name = CString::new(path.to_str().expect("a path")).expect("no NUL");
        // SAFETY: a library of this test; dlerror returns a string after a failure.
        unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
            if handle.is_null() {
                return Err(CStr::from_ptr(libc::dlerror()).to_string_lossy().into_owned());
            }
            Ok(Library(handle as usize))
        }
    }

    fn symbol(self, name: &str) -> usize {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: the handle is open.
        let p = unsafe { libc::dlsym(self.0 as *mut c_void, name.as_ptr()) };
        assert!(!p.is_null(), "{name:?}");
        p as usize
    }

    /// Calls a function that returns the address of the calling thread's variable.
    fn int(self, name: &str) -> *mut c_int {
        // SAFETY: the library's function has this type.
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> *mut c_int>(self.symbol(name))() }
    }

    fn bytes(self, name: &str) -> *mut c_char {
        self.int(name).cast()
    }

    fn value(self, name: &str) -> c_int {
        // SAFETY: the library's function has this type.
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> c_int>(self.symbol(name))() }
    }

    fn close(self) {
        // SAFETY: the handle is open and not used afterwards.
        assert_eq!(unsafe { libc::dlclose(self.0 as *mut c_void) }, 0);
    }
}

fn check_fresh(dynamic: Library, fixed: Library) {
    // SAFETY: addresses of the calling microprocess's own variables.
    unsafe {
        assert_eq!(*dynamic.int("dynamic_address"), 1234);
        assert_eq!(*dynamic.bytes("dynamic_big_address"), 7);
        assert_eq!(*dynamic.bytes("dynamic_big_address").add(19_999), 0);
        assert_eq!(*fixed.int("static_address"), 4321);
        assert_eq!(*fixed.bytes("static_bytes_address").add(2), 7);
        assert_eq!(*fixed.bytes("static_bytes_address").add(39), 0);
    }
}

fn dirty(dynamic: Library, fixed: Library, with: i32) {
    // SAFETY: addresses of the calling microprocess's own variables.
    unsafe {
        *dynamic.int("dynamic_address") = with;
        *dynamic.bytes("dynamic_big_address").add(19_999) = 3;
        *fixed.int("static_address") = with;
        *fixed.bytes("static_bytes_address").add(39) = 3;
        pause();
        assert_eq!(*dynamic.int("dynamic_address"), with);
        assert_eq!(*fixed.int("static_address"), with);
    }
}

#[test]
fn libraries_reach_blocks_built_before_during_and_after_the_load() {
    needs_blocks!();
    let dynamic = build("dynamic.c", "libdynamic1.so");
    let fixed = build("initial_exec.c", "libfixed1.so");
    let shared: &'static Mutex<Option<(Library, Library)>> = Box::leak(Box::new(Mutex::new(None)));
    // Built and started before any library is loaded; two of them have paused.
    let mut early: Vec<_> = (0..3)
        .map(|i| {
            Micro::new(STACK, move || {
                pause();
                let (d, f) = shared.lock().unwrap().expect("loaded");
                check_fresh(d, f);
                dirty(d, f, i);
            })
        })
        .collect();
    early[0].resume();
    early[1].resume();
    // Loads the libraries from a microprocess, on its own block.
    let loader = Micro::new(STACK, move || {
        let d = Library::open(&dynamic);
        let f = Library::open(&fixed);
        assert_eq!(f.value("constructor_saw"), 4321);
        *shared.lock().unwrap() = Some((d, f));
        check_fresh(d, f);
        dirty(d, f, 100);
    })
    .run();
    early = early.into_iter().map(Micro::run).collect();
    let (d, f) = shared.lock().unwrap().expect("loaded");
    // New and recycled blocks after the load.
    let late = Micro::new(STACK, move || {
        check_fresh(d, f);
        dirty(d, f, 200);
    });
    let mut all: Vec<_> = early.into_iter().chain([loader, late.run()]).collect();
    for round in 0..20 {
        for mut m in std::mem::take(&mut all) {
            m.reuse(move || {
                check_fresh(d, f);
                dirty(d, f, round);
            });
            all.push(m.run());
        }
    }
    check_fresh(d, f);
}

#[test]
fn blocks_stay_fresh_across_repeated_loads_and_unloads() {
    needs_blocks!();
    let dynamic = build("dynamic.c", "libdynamic2.so");
    let fixed = build("initial_exec.c", "libfixed2.so");
    // Sequential, because a library that is still open elsewhere is not initialised again.
    for _ in 0..3 {
        let (dynamic, fixed) = (dynamic.clone(), fixed.clone());
        Micro::new(STACK, move || {
            for i in 0..30 {
                let d = Library::open(&dynamic);
                let f = Library::open(&fixed);
                check_fresh(d, f);
                dirty(d, f, i);
                d.close();
                pause();
                f.close();
            }
        })
        .run();
    }
}

#[test]
fn exceptions_and_cpp_objects_move_with_the_microprocess() {
    needs_blocks!();
    if Command::new(compiler(true)).arg("--version").output().is_err() {
        return again::skip("no C++ compiler");
    }
    let lib = Library::open(&build("exceptions.cc", "libexceptions.so"));
    extern "C" fn pause_from_c() {
        pause();
    }
    let run = lib.symbol("exceptions");
    let body = move || {
        // SAFETY: the library's function has this type.
        let f =
            unsafe { std::mem::transmute::<usize, extern "C" fn(extern "C" fn()) -> c_int>(run) };
        for _ in 0..5 {
            assert_eq!(f(pause_from_c), 0);
        }
        assert!(lib.value("object_value") >= 1000);
    };
    let before = lib.value("objects_destroyed");
    let mut all: Vec<_> = (0..4).map(|_| Micro::new(STACK, body)).collect();
    // Interleaved on this kernel thread, with an exception in flight in each microprocess.
    // Afterwards each one moves to another kernel thread at every pause.
    for m in &mut all {
        for _ in 0..7 {
            m.resume();
        }
    }
    let mut all: Vec<_> = all.into_iter().map(Micro::run).collect();
    assert_eq!(lib.value("objects_destroyed") - before, 4);
    for m in &mut all {
        m.reuse(body);
    }
    let all: Vec<_> = all.into_iter().map(Micro::run).collect();
    assert_eq!(lib.value("objects_destroyed") - before, 8);
    drop(all);
}

/// Decrements the counter when dropped, hence also when its thread panics.
struct Less<'a>(&'a AtomicUsize);

impl Drop for Less<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Checks that blocks built or recycled during a dlopen have the variables of the new library.
#[test]
fn blocks_built_during_a_load_have_its_variables() {
    again::alone("blocks_built_during_a_load_have_its_variables", || {
        needs_blocks!();
        let made: Mutex<Vec<Box<Micro>>> = Mutex::new(Vec::new());
        let loaders = AtomicUsize::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                while loaders.load(Ordering::Relaxed) > 0 {
                    let mut m = Micro::new(0, || ());
                    while !m.resume() {}
                    made.lock().unwrap().push(m);
                    // Recycles used blocks, some of them on the slow path.
                    let used = made.lock().unwrap().drain(..1).next();
                    if let Some(mut m) = used {
                        m.reuse(|| {
                            // SAFETY: dlerror's state belongs to the microprocess.
                            unsafe {
                                libc::dlopen(c"./no-such-library.so".as_ptr(), libc::RTLD_NOW)
                            };
                        });
                        while !m.resume() {}
                        made.lock().unwrap().push(m);
                    }
                }
            });
            for name in ["libfixed4.so", "libfixed5.so"] {
                let (made, loaders) = (&made, &loaders);
                s.spawn(move || {
                    let _one_less = Less(loaders);
                    let path = build("initial_exec.c", name);
                    for _ in 0..150 {
                        // ld.so reclaims static TLS only in the reverse order of loading, so it may
                        // run out.
                        let f = match Library::try_open(&path) {
                            Err(e) if e.contains("static TLS") => break,
                            other => other.expect("dlopen"),
                        };
                        let some: Vec<_> = {
                            let mut made = made.lock().unwrap();
                            let n = made.len().min(5);
                            made.drain(..n).collect()
                        };
                        for mut m in some {
                            m.reuse(move || {
                                let at = f.int("static_address");
                                // SAFETY: the address of the microprocess's own variable.
                                unsafe {
                                    assert_eq!(*at, 4321);
                                    *at = 1;
                                }
                            });
                            while !m.resume() {}
                            assert!(!m.panicked());
                            made.lock().unwrap().push(m);
                        }
                        f.close();
                    }
                });
            }
        });
    });
}

#[test]
fn repeated_loads_do_not_leak_templates() {
    needs_blocks!();
    again::alone("repeated_loads_do_not_leak_templates", || {
        let dynamic = build("dynamic.c", "libdynamic3.so");
        let fixed = build("initial_exec.c", "libfixed3.so");
        let mut m = Micro::new(STACK, || ()).run();
        let mut round = || {
            let d = Library::open(&dynamic);
            let f = Library::open(&fixed);
            m.reuse(move || {
                check_fresh(d, f);
                // SAFETY: the address of the microprocess's own variable.
                unsafe { *d.int("dynamic_address") = 5 };
            });
            while !m.resume() {}
            d.close();
            f.close();
            m.reuse(|| ());
            while !m.resume() {}
        };
        for _ in 0..50 {
            round();
        }
        // SAFETY: mallinfo2 only reads malloc's counters.
        let before = unsafe { libc::mallinfo2() }.uordblks;
        for _ in 0..500 {
            round();
        }
        // SAFETY: as above.
        let after = unsafe { libc::mallinfo2() }.uordblks;
        assert!(after < before + 20_000, "malloc in use: {before} -> {after} bytes");
    });
}

#[test]
fn suite_passes_without_interposed_dlopen() {
    again::all_with("all_of_this_w", &[("KUMI_LAB", "dlopen=listed")]);
}

#[test]
fn suite_passes_with_donors() {
    again::all_with("all_of_this_w", &[("KUMI_LAB", "tls=donor")]);
}

/// jemalloc's variables leave gaps between those of libraries. Remains of a closed library in a gap
/// must not count as a difference.
#[test]
fn suite_passes_with_jemalloc() {
    let Some(library) = again::jemalloc() else { return again::skip("no libjemalloc.so.2 here") };
    again::all_with("all_of_this", &[("LD_PRELOAD", library)]);
    again::all_with("all_of_this", &[("LD_PRELOAD", library), ("KUMI_LAB", "dlopen=listed")]);
}
