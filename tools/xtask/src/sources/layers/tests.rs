use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// The graph of a crate `crates/a` with these files in `src`.
fn graph(files: &[(&str, &str)]) -> Graph {
    read(files).expect("a crate that parses")
}

fn read(files: &[(&str, &str)]) -> Result<Graph, Failure> {
    let target = Target {
        name: "crates/a".to_owned(),
        package: "kumihimo-a".to_owned(),
        root: "crates/a/src/lib.rs".into(),
    };
    let files: BTreeMap<_, _> = files.iter().copied().collect();
    let text = |file: &Path| {
        let file = file.strip_prefix("crates/a/src").ok()?.to_str()?.to_owned();
        files.get(&*file).map(|text| (*text).to_owned())
    };
    graphs_of(&[target], text).map(|mut graphs| graphs.remove(0))
}

/// The edges as `from -> to`.
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let graph = graph(files);
    let name = |module: usize| graph.modules[module].clone();
    let mut edges: Vec<_> =
        graph.edges.keys().map(|(from, to)| format!("{} -> {}", name(*from), name(*to))).collect();
    edges.sort();
    edges
}

/// Violations that `layers.txt` with these lines reports for a crate.
fn check(layers: &str, files: &[(&str, &str)]) -> String {
    Layers::parse(layers).expect("a list of rooms").check(&[graph(files)])
}

const TWO_ROOMS: &str =
    "circles 0\nlargest 0\ncrate crates/a\nroom low\nroom high texts are allowed\n";

#[test]
fn import_from_a_lower_room_passes() {
    let files = [
        ("lib.rs", "mod high; mod low; pub use high::High;"),
        ("low.rs", "pub struct Low;"),
        ("high/mod.rs", "mod inner; pub use inner::High;"),
        ("high/inner.rs", "use crate::low::Low; pub struct High(Low);"),
    ];
    assert_eq!(check(TWO_ROOMS, &files), "");
}

#[test]
fn import_from_a_higher_room_fails() {
    let files = [
        ("lib.rs", "mod high; mod low;"),
        ("low/mod.rs", "mod inner;"),
        ("low/inner.rs", "\nfn f() { crate::high::g(); }"),
        ("high.rs", "pub fn g() {}"),
    ];
    let found = check(TWO_ROOMS, &files);
    assert!(found.contains("crates/a: room low imports from high above it"), "{found}");
    assert!(found.contains("low::inner -> high  1  crates/a/src/low/inner.rs:2"), "{found}");
    assert!(!found.contains("form a circle"), "{found}");
}

#[test]
fn import_from_the_root_fails_in_a_room() {
    let files = [
        ("lib.rs", "mod high; mod low; pub struct Root;"),
        ("low.rs", "use crate::Root;"),
        ("high.rs", ""),
    ];
    assert!(check(TWO_ROOMS, &files).contains("room low imports from crate above it"));
}

#[test]
fn circle_between_rooms_without_a_circle_of_modules_fails() {
    let files = [
        ("lib.rs", "mod high; mod low;"),
        ("low.rs", "mod one; mod two;"),
        ("low/one.rs", "use crate::high::one::A;"),
        ("low/two.rs", "pub struct B;"),
        ("high.rs", "pub mod one; mod two;"),
        ("high/one.rs", "pub struct A;"),
        ("high/two.rs", "use crate::low::two::B;"),
    ];
    let found = check(TWO_ROOMS, &files);
    assert!(found.contains("crates/a: the rooms form a circle"), "{found}");
    assert!(found.contains("crates/a: circle of 2 modules: high, low"), "{found}");
    assert!(found.contains("high -> low  1  crates/a/src/high/two.rs:1"), "{found}");
    assert!(found.contains("low -> high  1  crates/a/src/low/one.rs:1"), "{found}");
}

#[test]
fn unknown_and_unlisted_rooms_and_crates_fail() {
    let files = [("lib.rs", "mod low; mod middle;"), ("low.rs", ""), ("middle.rs", "")];
    let found = check(TWO_ROOMS, &files);
    assert!(found.contains("crates/a has no room high"), "{found}");
    assert!(found.contains("room middle of crates/a is not listed"), "{found}");
    let found = check("circles 0\nlargest 0\ncrate crates/b\n", &files);
    assert!(found.contains("crates/b is not a crate"), "{found}");
}

/// A circle of three modules, and a fourth outside it.
const CIRCLE: [(&str, &str); 5] = [
    ("lib.rs", "mod a; mod b; mod c; mod d;"),
    ("a.rs", "use crate::b::B; pub struct A;"),
    ("b.rs", "use crate::c::C; pub struct B;"),
    ("c.rs", "use crate::{a::A, d::D}; pub struct C; impl C { fn f() -> A { crate::a::A } }"),
    ("d.rs", "pub struct D;"),
];

#[test]
fn circle_of_modules_above_the_budget_fails() {
    assert_eq!(check("circles 1\nlargest 3\n", &CIRCLE), "");
    let found = check("circles 0\nlargest 3\n", &CIRCLE);
    assert!(found.contains("crates/a: circle of 3 modules: a, b, c\n"), "{found}");
    assert!(found.contains("a way around of 3 steps"), "{found}");
    assert!(found.contains("c -> a  3  crates/a/src/c.rs:1"), "{found}");
    assert!(found.contains("1 circles of modules, 0 allowed\n"), "{found}");
    let found = check("circles 1\nlargest 2\n", &CIRCLE);
    assert!(found.contains("3 modules in the largest circle, 2 allowed\n"), "{found}");
}

#[test]
fn budget_above_the_current_values_fails() {
    let found = check("circles 2\nlargest 3\n", &CIRCLE);
    assert_eq!(found, "layers: 1 circles of modules, 2 allowed: run scripts/layers --lower\n");
    assert!(check("circles 1\nlargest 4\n", &CIRCLE).contains("run scripts/layers --lower"));
}

#[test]
fn budget_falls_and_never_rises() {
    let text = "# head\ncircles 2\nlargest 4\n\ncrate crates/a\nroom a\n";
    let graphs = [graph(&CIRCLE)];
    let lower = |text| Layers::parse(text).expect("a list of rooms").lowered(text, &graphs);
    let expected = "# head\ncircles 1\nlargest 3\n\ncrate crates/a\nroom a\n";
    assert_eq!(lower(text).expect("lower values"), expected);
    assert!(lower("circles 0\nlargest 3\n").is_err());
}

#[test]
fn removal_of_the_cuts_breaks_a_circle() {
    let mut graph = graph(&CIRCLE);
    let circle = graph.circles().remove(0);
    let cuts = circles::cuts(&graph, &circle);
    assert_eq!(cuts.len(), 1);
    graph.edges.retain(|step, _| !cuts.contains(step));
    assert!(graph.circles().is_empty());
}

#[test]
fn malformed_lists_are_refused() {
    let wrong = [
        "largest 0\n",
        "circles 0\n",
        "circles many\nlargest 0\n",
        "circles 0\ncircles 0\nlargest 0\n",
        "circles 0\nlargest 0\nroom low\n",
        "circles 0\nlargest 0\ncrate crates/a\nroom low\nroom low\n",
        "circles 0\nlargest 0\ncrate crates/a\ncrate crates/a\n",
        "circles 0\nlargest 0\nroof low\n",
    ];
    for text in wrong {
        assert!(Layers::parse(text).is_err(), "{text}");
    }
}

#[test]
fn workspace_without_sources_is_an_error() {
    assert!(graphs_of(&[], |_| None).is_err());
    assert!(read(&[]).is_err());
    assert!(read(&[("lib.rs", "mod missing;")]).is_err());
    assert!(read(&[("lib.rs", "fn unfinished(")]).is_err());
}

#[test]
fn paths_lead_to_the_module_they_name() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        (
            "a.rs",
            "mod one; use self::one::One; use super::b::{self, inner::{Deep as Other, more}};
             use crate::c; fn f() { b::g(); c::h(); std::mem::drop(crate::d::CONSTANT); }",
        ),
        ("a/one.rs", "pub struct One;"),
        ("b.rs", "pub mod inner; pub fn g() {}"),
        ("b/inner.rs", "pub struct Deep; pub fn more() {}"),
        ("c.rs", "pub fn h() {}"),
        ("d.rs", "pub const CONSTANT: u8 = 0;"),
    ];
    assert_eq!(edges(&files), ["a -> a::one", "a -> b", "a -> b::inner", "a -> c", "a -> d"]);
}

#[test]
fn re_export_leads_to_the_defining_module() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use b::{Deep, globbed::*}; pub use std::sync::Arc;"),
        ("a.rs", "use crate::{Deep, Arc}; use crate::Second; use crate::b::Third;"),
        (
            "b.rs",
            "mod inner; pub mod globbed; pub use inner::Deep; pub(crate) use crate::c::Third;",
        ),
        ("b/inner.rs", "pub struct Deep;"),
        ("b/globbed.rs", "pub struct Second;"),
        ("c.rs", "pub struct Third;"),
    ];
    // `b` re-exports an item of a module that is not below it, which is an import.
    let expected = ["a -> b::globbed", "a -> b::inner", "a -> c", "a -> crate", "b -> c"];
    assert_eq!(edges(&files), expected);
}

#[test]
fn parent_imports_from_a_child_only_what_its_code_uses() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod child; pub use child::{Thing, run};"),
        ("a/child.rs", "pub struct Thing; pub fn run() {}"),
        ("b.rs", "mod child; pub use child::Thing; pub struct Both(Thing);"),
        ("b/child.rs", "pub struct Thing;"),
    ];
    assert_eq!(edges(&files), ["b -> b::child"]);
}

#[test]
fn module_and_its_submodule_form_no_circle() {
    let files = [
        ("lib.rs", "mod a; mod b; pub struct Root;"),
        ("a.rs", "mod child; pub struct Thing; pub fn run() { child::run(&crate::Root) }"),
        ("a/child.rs", "use super::Thing; pub fn run(_: &crate::Root) -> Thing { Thing }"),
        ("b.rs", "pub struct Other;"),
    ];
    assert_eq!(check("circles 0\nlargest 0\n", &files), "");
    let mut by_a_third = files;
    by_a_third[2].1 = "pub fn run(_: &crate::Root) -> crate::b::Other { crate::b::Other }";
    by_a_third[3].1 = "use crate::a::Thing; pub struct Other; pub struct Both(Thing);";
    assert_eq!(
        check("circles 0\nlargest 0\n", &by_a_third),
        "",
        "imports of a child count separately"
    );
}

#[test]
fn macro_arguments_and_definitions_count() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; #[macro_use] mod macros;"),
        ("a.rs", "use crate::b; fn f() { assert!(b::is_ready(0).0 == 1, \"{}\", crate::c::C); }"),
        ("b.rs", "pub fn is_ready(_: u8) -> (u8,) { (0,) }"),
        ("c.rs", "pub const C: u8 = 0; fn f() { crate::exported!(); }"),
        (
            "macros.rs",
            "macro_rules! plain { () => { $crate::b::is_ready(0) } }
             #[macro_export] macro_rules! exported { () => {} }",
        ),
    ];
    assert_eq!(edges(&files), ["a -> b", "a -> c", "c -> macros", "macros -> b"]);
}

#[test]
fn inline_modules_belong_to_their_file() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "mod inner { mod below; use super::super::b::B; fn f() { super::g() } } fn g() {}",
        ),
        ("a/inner/below.rs", "use super::super::super::b::B;"),
        ("b.rs", "pub struct B;"),
    ];
    assert_eq!(edges(&files), ["a -> b", "a::inner::below -> b"]);
}

#[test]
fn tests_and_models_are_left_out() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; #[cfg(test)] mod missing; #[cfg(all(loom, unix))] mod models;
             mod tests; #[cfg(any(test, feature = \"f\"))] mod featured;",
        ),
        (
            "a.rs",
            "#[cfg(test)] use crate::b::B; #[cfg(not(test))] use crate::b::C;
             #[cfg(any(test, loom))] fn f() { crate::featured::g(); }
             struct A; impl A { #[cfg(test)] fn f() { crate::featured::g(); } }",
        ),
        ("b.rs", "pub struct B; pub struct C;"),
        ("featured.rs", "use crate::b::B;"),
    ];
    assert_eq!(edges(&files), ["a -> b", "featured -> b"]);
}

#[test]
fn file_of_a_module_may_be_named() {
    let files = [
        ("lib.rs", "#[path = \"other/place.rs\"] mod a; mod b;"),
        ("other/place.rs", "mod sibling; use crate::b::B;"),
        ("other/sibling.rs", "use crate::b::B;"),
        ("b.rs", "pub struct B;"),
    ];
    assert_eq!(edges(&files), ["a -> b", "a::sibling -> b"]);
}

#[test]
fn variables_are_no_imports() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod current; pub use current::current; fn f(current: u8) -> u8 { current }"),
        ("a/current.rs", "pub fn current() {}"),
        ("b.rs", "use missing::b; fn f(a: &B) { a.current(); println!(\"{a}\", a = 1) }"),
    ];
    assert_eq!(edges(&files), [""; 0]);
}

#[test]
fn graph_names_count_and_first_place_of_an_edge() {
    let graph = graph(&CIRCLE);
    let text = graph.to_string();
    assert!(text.starts_with("crates/a: 5 modules, 4 edges\n"), "{text}");
    assert!(text.contains("\n  a -> b  1  crates/a/src/a.rs:1\n"), "{text}");
    for name in ["a", "crates/a", "kumihimo-a"] {
        assert!(graph.is_called(name), "{name}");
    }
    assert!(!graph.is_called("b") && !graph.is_called("crates"));
}

#[test]
fn folder_with_more_than_twelve_files_is_refused() {
    let root = std::env::temp_dir().join(format!("kumihimo-crowded-{}", std::process::id()));
    let folder = root.join("crates/a/src");
    fs::create_dir_all(folder.join("room")).expect("a folder");
    let target = Target {
        name: "crates/a".to_owned(),
        package: "kumihimo-a".to_owned(),
        root: "crates/a/src/lib.rs".into(),
    };
    let found = || crowded::crowded(&root, std::slice::from_ref(&target)).expect("readable");
    (0..12).for_each(|n| fs::write(folder.join(format!("{n}.rs")), "").expect("room"));
    let twelve = found();
    fs::write(folder.join("lib.rs"), "").expect("room");
    let thirteen = found();
    fs::remove_dir_all(&root).expect("its own folder");
    assert_eq!(twelve, "");
    assert_eq!(thirteen, "crates/a/src: 13 files, 12 allowed: gather some in a folder\n");
}
