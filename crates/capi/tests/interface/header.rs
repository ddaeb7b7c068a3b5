//! The header compiles as C and C++, and matches the library.

use std::collections::BTreeSet;
use std::process::Command;

use crate::place::{Place, done, has, here, libraries};

const DIALECTS: [(&str, &str, &str); 6] = [
    ("cc", "c", "c89"),
    ("cc", "c", "c99"),
    ("cc", "c", "c17"),
    ("c++", "c++", "c++98"),
    ("c++", "c++", "c++11"),
    ("c++", "c++", "c++20"),
];

#[test]
fn header_compiles_in_every_dialect() {
    let place = Place::new("header_compiles_in_every_dialect");
    let source = place.0.join("it.c");
    let text = "#include <kumihimo.h>\n#include <kumihimo.h>\nint main(void) {\n\
        kumi_options options = KUMI_OPTIONS_INIT; kumi_bytes bytes = KUMI_BYTES_INIT; enum kumi_placement p = KUMI_SPIN;\n\
        return (int)(options.size + bytes.length + (size_t)p + KUMI_VERSION); }\n";
    std::fs::write(&source, text).expect("room");
    for (compiler, language, dialect) in DIALECTS {
        if has("header::header_compiles_in_every_dialect", compiler) {
            let strict =
                ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language];
            let command = &mut Command::new(compiler);
            done(
                command
                    .args(strict)
                    .arg(format!("-std={dialect}"))
                    .arg("-I")
                    .arg(here().join("include"))
                    .arg(&source),
            );
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
    for (name, size, fields) in
        [kumihimo_c::options::LAYOUT, kumihimo_c::bytes::LAYOUT, kumihimo_c::serve::LAYOUT]
    {
        text += &format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n");
        for (field, at) in fields {
            text += &format!(
                "_Static_assert(offsetof({name}, {field}) == {at}, \"{name}.{field}\");\n"
            );
        }
    }
    text += &format!("_Static_assert(KUMI_VERSION == {}, \"version\");\n", kumihimo_c::VERSION);
    text += &format!(
        "_Static_assert(KUMI_ALLOW_EVERYBODY == {}, \"\");\n",
        kumihimo_c::options::ALLOW_EVERYBODY
    );
    text += &format!(
        "_Static_assert(KUMI_NO_INHERITANCE == {}, \"\");\n",
        kumihimo_c::options::NO_INHERITANCE
    );
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

#[test]
fn every_function_is_in_header_and_library() {
    if !has("header::every_function_is_in_header_and_library", "nm") {
        return;
    }
    let header = std::fs::read_to_string(here().join("include/kumihimo.h")).expect("it is there");
    let declared: BTreeSet<String> = header
        .lines()
        .filter(|line| {
            !line.starts_with([' ', '/', '*', '#'])
                && line.contains('(')
                && !line.starts_with("typedef")
        })
        .filter_map(|line| {
            line.split(['*', ' ', '('])
                .find(|word| word.starts_with("kumi_") && line.contains(&format!("{word}(")))
        })
        .map(str::to_owned)
        .collect();
    let library = libraries().join("libkumihimo_c.so");
    let output = done(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).stdout;
    let listed = String::from_utf8(output).expect("names");
    let defined: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| name.starts_with("kumi_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(declared, defined);
    let manual = std::fs::read_to_string(here().join("man/kumihimo_gates.3")).expect("it is there");
    let missing: Vec<_> =
        declared.iter().filter(|name| !manual.contains(&format!(".Nm {name}"))).collect();
    assert!(missing.is_empty(), "the manual page lacks {missing:?}");
}
