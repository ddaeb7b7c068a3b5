//! Where sources ask for the processor: only in `crates/arch/src`, behind its seam.

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::workspace;

    /// Files outside the seam that ask, with the number of lines that do, and why.
    const ALLOWED: [(&str, usize, &str); 8] = [
        ("crates/backtrace/src/registers.rs", 3, "chooses the types of framehop"),
        ("crates/interpose/src/lib.rs", 1, "the whole crate is for x86_64"),
        ("crates/io/src/fuse/mod.rs", 1, "an example in the documentation"),
        ("crates/kumihimo/src/lib.rs", 2, "`interpose!` is for x86_64"),
        ("crates/preload/src/lib.rs", 1, "the whole crate is for x86_64"),
        ("crates/run/src/lib.rs", 1, "the whole crate is for x86_64"),
        ("tools/xtask/src/check/aarch64.rs", 1, "an emulator is of no use on the machine itself"),
        ("tools/xtask/src/check/portable.rs", 1, "musl's programs run on x86_64"),
    ];

    /// The sources of `folder` that are part of a program: no tests.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() {
                let skipped = ["target", "tests", "benches", "rivals"];
                if !skipped.iter().any(|skipped| name == *skipped) {
                    sources(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn processor_is_asked_for_behind_the_seam_only() {
        let root = workspace::root();
        let mut found = Vec::new();
        for part in ["crates", "servers", "tools", "lab", "examples"] {
            sources(&root.join(part), &mut found);
        }
        let mut asking = Vec::new();
        for path in &found {
            let name = path.strip_prefix(&root).expect("below the root").display().to_string();
            if name.starts_with("crates/arch/src/") || name.ends_with("sources/seam.rs") {
                continue;
            }
            let text = std::fs::read_to_string(path).expect("a source");
            let lines = text.lines().filter(|line| line.contains("target_arch =")).count();
            if lines > 0 {
                asking.push((name, lines));
            }
        }
        asking.sort();
        let allowed: Vec<_> =
            ALLOWED.iter().map(|(name, lines, _)| ((*name).to_owned(), *lines)).collect();
        assert_eq!(asking, allowed);
    }
}
