//! C and C++ libraries with thread-local variables, loaded before and after a block was built.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod harness;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::{Micro, again, pause};

const STACK: usize = 256 << 10;

/// Compiles a source of tests/native to a shared library called `name`, unless that has been done
/// since it changed.
fn build(source: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native").join(source);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let out = dir.join(name);
    let made = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    if made(&out) > made(&source) {
        return out;
    }
    let compiler = if source.extension().is_some_and(|e| e == "cc") { "c++" } else { "cc" };
    // Several processes may do this at once: each writes its own file, and renaming replaces the
    // whole.
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
        // SAFETY: the test's own library; dlerror returns a string after a failure.
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
        // SAFETY: an open handle.
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
        // SAFETY: an open handle that is not used any more.
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
fn loaded_before_while_and_after_blocks_were_built() {
    needs_blocks!();
    let dynamic = build("dynamic.c", "libdynamic1.so");
    let fixed = build("initial_exec.c", "libfixed1.so");
    let shared: &'static Mutex<Option<(Library, Library)>> = Box::leak(Box::new(Mutex::new(None)));
    // Built and started before anything is loaded; two of them have paused in the middle.
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
    // Loaded by a microprocess, on its own block.
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
    // Built afterwards, and used ones again.
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
fn loaded_and_unloaded_again_and_again() {
    needs_blocks!();
    let dynamic = build("dynamic.c", "libdynamic2.so");
    let fixed = build("initial_exec.c", "libfixed2.so");
    // One after the other: a library that another one has open is not loaded afresh.
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
fn exceptions_and_cpp_objects() {
    needs_blocks!();
    if Command::new("c++").arg("--version").output().is_err() {
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
    // Interleaved on this kernel thread, with exceptions in flight in all of them; then each moves
    // at every pause.
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

/// Counts down also when its thread panics.
struct Less<'a>(&'a AtomicUsize);

impl Drop for Less<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Blocks built or recycled at any moment of any dlopen find what it loaded.
#[test]
fn blocks_made_while_libraries_are_loaded() {
    again::alone("blocks_made_while_libraries_are_loaded", || {
        needs_blocks!();
        let made: Mutex<Vec<Box<Micro>>> = Mutex::new(Vec::new());
        let loaders = AtomicUsize::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                while loaders.load(Ordering::Relaxed) > 0 {
                    let mut m = Micro::new(0, || ());
                    while !m.resume() {}
                    made.lock().unwrap().push(m);
                    // Used ones again, some in the thorough way.
                    let used = made.lock().unwrap().drain(..1).next();
                    if let Some(mut m) = used {
                        m.reuse(|| {
                            // SAFETY: dlerror's state is the microprocess's own.
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
                        // ld.so gets static TLS back only in the reverse order of loading, so it
                        // may run out.
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
fn loading_does_not_leak_templates() {
    needs_blocks!();
    again::alone("loading_does_not_leak_templates", || {
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
fn all_of_this_where_dlopen_passes_us_by() {
    again::all_with("all_of_this_w", &[("KUMI_LAB", "dlopen=listed")]);
}

#[test]
fn all_of_this_with_donors() {
    again::all_with("all_of_this_w", &[("KUMI_LAB", "tls=donor")]);
}

/// jemalloc's own variables leave gaps between those of libraries, in which the remains of a closed
/// library counted as a difference.
#[test]
fn all_of_this_beside_jemalloc() {
    let Some(library) = again::jemalloc() else { return again::skip("no libjemalloc.so.2 here") };
    again::all_with("all_of_this", &[("LD_PRELOAD", library)]);
    again::all_with("all_of_this", &[("LD_PRELOAD", library), ("KUMI_LAB", "dlopen=listed")]);
}
