//! The header compiles as C and C++, and matches the library.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::place::{Place, done, has, here, libraries, shared_library};

const DIALECTS: [(&str, &str, &str); 10] = [
    ("gcc", "c", "c89"),
    ("gcc", "c", "c99"),
    ("gcc", "c", "c11"),
    ("gcc", "c", "c17"),
    ("g++", "c++", "c++98"),
    ("g++", "c++", "c++11"),
    ("g++", "c++", "c++20"),
    ("clang", "c", "c11"),
    ("clang++", "c++", "c++11"),
    ("clang++", "c++", "c++20"),
];
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];

/// The headers below `include`, as programs include them.
fn headers() -> Vec<String> {
    let below = |folder: &str| {
        let entries = std::fs::read_dir(here().join("include").join(folder)).expect("a folder");
        let names = entries.flatten().map(|entry| entry.file_name());
        names.map(|name| format!("{folder}{}", name.to_str().expect("UTF-8"))).collect::<Vec<_>>()
    };
    let mut all = below("");
    all.extend(below("kumihimo/"));
    all.retain(|name| name.ends_with(".h") || name.ends_with(".hpp"));
    all.sort();
    assert!(all.len() > 10, "{all:?}");
    all
}

/// A header in C++, which includes parts of the standard library: a second each.
fn is_cpp(header: &str) -> bool {
    header.ends_with(".hpp")
}

/// Each header of C compiles alone and twice; of C++, the one that includes all.
#[test]
fn headers_compile_in_every_dialect() {
    let name = "header::headers_compile_in_every_dialect";
    compile(name, |header| !is_cpp(header) || header == "kumihimo.hpp");
}

#[test]
fn each_header_of_cpp_compiles_alone() {
    compile("header::each_header_of_cpp_compiles_alone", is_cpp);
}

/// Compiles each of the chosen headers alone and twice, with `-I`: compilers hide the warnings of
/// headers of the system.
fn compile(test: &str, is_chosen: impl Fn(&str) -> bool) {
    let place = Place::new(test);
    let headers: Vec<String> = headers().into_iter().filter(|header| is_chosen(header)).collect();
    for (compiler, language, dialect) in DIALECTS {
        if !has(test, compiler) {
            continue;
        }
        for header in &headers {
            if is_cpp(header) && dialect != "c++20" {
                continue;
            }
            let source = place.0.join("it.c");
            let mut text = format!("#include <{header}>\n#include <{header}>\n");
            text += "int main(void) {\n";
            if header == "kumihimo.h" {
                text += "kumi_options options = KUMI_OPTIONS_INIT; kumi_bytes bytes = KUMI_BYTES_INIT;\n\
                    enum kumi_placement p = KUMI_SPIN; kumi_thread_options t = KUMI_THREAD_OPTIONS_INIT;\n\
                    kumi_mutex m = KUMI_MUTEX_INIT; kumi_cond c = KUMI_COND_INIT; kumi_rwlock r = KUMI_RWLOCK_INIT;\n\
                    kumi_semaphore s = KUMI_SEMAPHORE_INIT;\n\
                    (void)m, (void)c, (void)r, (void)s, (void)t;\n\
                    return (int)(options.size + bytes.length + (size_t)p + KUMI_VERSION); }\n";
            } else {
                text += "return 0; }\n";
            }
            std::fs::write(&source, text).expect("room");
            let mut command = Command::new(compiler);
            command.args(STRICT).args(["-fsyntax-only", "-x", language]);
            command.arg(format!("-std={dialect}"));
            done(command.arg("-I").arg(here().join("include")).arg(&source));
        }
    }
}

/// Compiles a C program that asserts sizes, offsets and constants.
#[test]
fn header_layouts_match_the_library() {
    if !has("header::header_layouts_match_the_library", "cc") {
        return;
    }
    let mut text = String::from("#include <kumihimo.h>\n");
    for (name, size, fields) in [
        kumihimo_c::options::LAYOUT,
        kumihimo_c::gate::bytes::LAYOUT,
        kumihimo_c::gate::serve::LAYOUT,
        kumihimo_c::thread::LAYOUT,
    ] {
        text += &format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n");
        for (field, at) in fields {
            text += &format!(
                "_Static_assert(offsetof({name}, {field}) == {at}, \"{name}.{field}\");\n"
            );
        }
    }
    let constants = [
        ("KUMI_VERSION", u64::from(kumihimo_c::VERSION)),
        ("KUMI_ALLOW_EVERYBODY", kumihimo_c::options::ALLOW_EVERYBODY.into()),
        ("KUMI_NO_INHERITANCE", kumihimo_c::options::NO_INHERITANCE.into()),
        ("KUMI_THREAD_DETACHED", kumihimo_c::thread::DETACHED.into()),
        ("KUMI_THREAD_BOUND", kumihimo_c::thread::BOUND.into()),
        ("(size_t)KUMI_THREAD_CANCELED", kumihimo_c::thread::CANCELED as u64),
        ("KUMI_MUTEX_RECURSIVE", kumihimo_c::sync::mutex::RECURSIVE.into()),
        ("KUMI_SEMAPHORE_MAX", kumihimo_c::sync::semaphore::MAX as u64),
        ("KUMI_CHANNEL_MAX_ITEM", kumihimo_c::sync::channel::MAX_ITEM as u64),
        ("KUMI_CHANNEL_MAX_CAPACITY", kumihimo_c::sync::channel::MAX_CAPACITY as u64),
        ("(uint64_t)KUMI_FOREVER", kumihimo_c::time::FOREVER.cast_unsigned()),
        ("KUMI_OBJECT_WORDS", kumihimo_c::object::WORDS as u64),
        ("sizeof(kumi_mutex)", kumihimo_c::object::WORDS as u64 * 8),
        ("sizeof(kumi_barrier)", kumihimo_c::object::WORDS as u64 * 8),
    ];
    for (name, value) in constants {
        text += &format!("_Static_assert({name} == {value}u, \"{name}\");\n");
    }
    let place = Place::new("header_layouts_match_the_library");
    let source = place.0.join("layouts.c");
    std::fs::write(&source, &text).expect("room");
    let command = &mut Command::new("cc");
    done(command.args(["-std=c11", "-fsyntax-only", "-I"]).arg(here().join("include")).arg(source));

    let version = env!("CARGO_PKG_VERSION")
        .split('.')
        .fold(0, |all, part| all << 8 | part.parse::<u32>().expect("a number"));
    assert_eq!(version, kumihimo_c::VERSION, "KUMI_VERSION is Cargo.toml's");
}

/// The functions that the headers declare.
fn declared() -> BTreeSet<String> {
    let mut declared = BTreeSet::new();
    for header in headers().iter().filter(|name| name.ends_with(".h")) {
        let text = std::fs::read_to_string(here().join("include").join(header)).expect("readable");
        let lines = text.lines().filter(|line| {
            !line.starts_with([' ', '/', '*', '#'])
                && line.contains('(')
                && !line.starts_with("typedef")
        });
        declared.extend(lines.filter_map(|line| {
            line.split(['*', ' ', '('])
                .find(|word| word.starts_with("kumi_") && line.contains(&format!("{word}(")))
                .map(str::to_owned)
        }));
    }
    declared
}

/// The exported symbols of a shared library, each with its version or `-`.
fn exported(library: &Path) -> BTreeSet<(String, String)> {
    let mut nm = Command::new("nm");
    let output = done(nm.args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library));
    let listed = String::from_utf8(output.stdout).expect("names");
    let symbols = listed.lines().filter_map(|line| {
        let (kind, name) = (line.split_whitespace().nth(1)?, line.split_whitespace().nth(2)?);
        // The versions themselves.
        (kind != "A").then(|| match name.split_once("@@") {
            Some((name, version)) => (name.to_owned(), version.to_owned()),
            None => (name.to_owned(), "-".to_owned()),
        })
    });
    symbols.collect()
}

/// symbols.txt.
fn listed() -> BTreeSet<(String, String)> {
    let text = std::fs::read_to_string(here().join("symbols.txt")).expect("readable");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(' ').expect("a name and a version"));
    pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
}

/// Both directions: a new symbol is listed, and a listed one stays.
#[test]
fn exported_symbols_are_the_listed_ones() {
    if !has("header::exported_symbols_are_the_listed_ones", "nm") {
        return;
    }
    let listed = listed();
    assert_eq!(exported(&shared_library()), listed);
    // Symbols that the list lacks are not visible in that library. cargo's own exports all, in a
    // build of the whole workspace those of the feature `interpose` of `kumihimo` as well.
    let built: BTreeSet<_> = exported(&libraries().join("libkumihimo_c.so"))
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("kumi_interpose_"))
        .collect();
    assert_eq!(built, listed.iter().map(|(name, _)| name.clone()).collect());
    for (name, version) in &listed {
        assert_eq!(name.starts_with("kumi_"), version.starts_with("KUMIHIMO_0."), "{name}");
    }
}

#[test]
fn every_function_is_in_header_library_and_manual() {
    let listed = listed();
    let functions = listed.iter().filter(|(name, _)| name.starts_with("kumi_"));
    let declared = declared();
    assert_eq!(declared, functions.map(|(name, _)| name.clone()).collect());
    let mut manual = String::new();
    for page in std::fs::read_dir(here().join("man")).expect("a folder").flatten() {
        manual += &std::fs::read_to_string(page.path()).expect("readable");
    }
    let is_missing = |name: &&String| {
        !manual.lines().any(|line| {
            line.strip_prefix(".Nm ").is_some_and(|of| of.trim_end_matches(" ,") == **name)
        })
    };
    let missing: Vec<_> = declared.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "the manual pages lack {missing:?}");
}

/// The limit holds for the optimised library, which `scripts/install` builds.
#[test]
fn stripped_library_of_a_release_is_small() {
    let name = "header::stripped_library_of_a_release_is_small";
    let profile = libraries().parent().and_then(Path::file_name).map(|name| name.to_owned());
    let release = kumihimo_tests::root().join("target/release/libkumihimo_c.a");
    let is_built = profile.is_some_and(|name| name == "release");
    let library = if is_built {
        shared_library()
    } else if release.exists() {
        let place = Place::new(name);
        let library = place.0.join("libkumihimo_c.so");
        let script = kumihimo_tests::root().join("scripts/link-c-library");
        done(Command::new(script).arg(&release).arg(&library));
        done(Command::new("strip").arg("--strip-unneeded").arg(&library));
        return check_size(&library);
    } else {
        kumihimo_tests::skip(name, "no release build here: scripts/install PREFIX c");
        return;
    };
    check_size(&library);
}

fn check_size(library: &Path) {
    let size = std::fs::metadata(library).expect("a file").len();
    assert!(size <= 3 << 20, "{} has {size} bytes", library.display());
}
