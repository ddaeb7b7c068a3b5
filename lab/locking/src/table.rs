//! The counts by crate, as a table.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::Lines;

/// Modules that implement the procedures of the resource interface.
const BEHIND: [&str; 6] = [
    "crates/runtime/src/resource/builtin_kinds.rs",
    "crates/runtime/src/resource/region.rs",
    "crates/runtime/src/resource/kind_table.rs",
    "crates/sync/src/msg/mailbox_table.rs",
    "crates/sync/src/msg/resource_entry.rs",
    "crates/io/src/handles.rs",
];
/// Crate of the resource interface.
const INTERFACE: &str = "resource";

/// The paper's counts (P3, table 1): its own system in two designs, and Linux.
pub const PAPER: [Row<'static>; 3] = [
    Row {
        name: "Tender, by kind (P3)",
        lines: Lines { code: 196_469, locking: 128 },
        files: 579,
        touched: 24,
    },
    Row {
        name: "Tender, by id (P3)",
        lines: Lines { code: 202_049, locking: 653 },
        files: 581,
        touched: 62,
    },
    Row {
        name: "Linux 2.6.39 (P3)",
        lines: Lines { code: 737_679, locking: 5_033 },
        files: 1_567,
        touched: 330,
    },
];

/// One row: a crate or a sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// Name of the crate or of the sum.
    pub name: &'a str,
    /// Lines of code, and lines that touch locking.
    pub lines: Lines,
    /// Number of source files.
    pub files: u64,
    /// Number of source files with at least one line that touches locking.
    pub touched: u64,
}

impl<'a> Row<'a> {
    fn sum<'f>(name: &'a str, files: impl IntoIterator<Item = &'f File>) -> Self {
        let empty = Self { name, lines: Lines::default(), files: 0, touched: 0 };
        files.into_iter().fold(empty, |row, file| Self {
            name,
            lines: row.lines + file.lines,
            files: row.files + 1,
            touched: row.touched + u64::from(file.lines.locking > 0),
        })
    }

    /// Percentage of lines that touch locking; 0 without lines.
    #[must_use]
    pub fn per_cent(&self) -> f64 {
        if self.lines.code == 0 {
            0.0
        } else {
            100.0 * self.lines.locking as f64 / self.lines.code as f64
        }
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, lines: Lines { code, locking }, files, touched } = self;
        write!(f, "{name:<28} {code:8} {locking:8} {:6.2} {files:8} {touched:8}", self.per_cent())
    }
}

/// One source file.
struct File {
    /// Name of the crate's directory.
    package: String,
    /// Path relative to the root of the tree.
    path: PathBuf,
    lines: Lines,
}

/// The counts of a source tree.
pub struct Table {
    /// The files, sorted by crate.
    files: Vec<File>,
}

impl Table {
    /// Counts all source files of `root`/crates: see [`sources`](crate::sources).
    ///
    /// # Errors
    ///
    /// If a directory or file cannot be read, or a file is missing for which the table has a row.
    pub fn count(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for package in entries(&root.join("crates"))?.into_iter().filter(|path| path.is_dir()) {
            let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let source = package.join("src");
            if source.is_dir() {
                add_folder(root, &name, &source, &mut files)?;
            }
        }
        let missing =
            BEHIND.iter().find(|path| !files.iter().any(|file| file.path == Path::new(path)));
        match missing {
            Some(path) => {
                Err(io::Error::new(io::ErrorKind::NotFound, format!("{path}: not a source file")))
            }
            None => Ok(Self { files }),
        }
    }

    /// One row for each crate with source files, sorted by name.
    #[must_use]
    pub fn crates(&self) -> Vec<Row<'_>> {
        self.files
            .chunk_by(|one, other| one.package == other.package)
            .map(|files| Row::sum(&files[0].package, files))
            .collect()
    }

    /// The crate of the resource interface.
    #[must_use]
    pub fn interface(&self) -> Row<'static> {
        Row::sum(
            "the resource interface",
            self.files.iter().filter(|file| file.package == INTERFACE),
        )
    }

    /// The modules that implement the procedures of the interface.
    #[must_use]
    pub fn behind(&self) -> Row<'static> {
        let is_behind = |file: &&File| BEHIND.iter().any(|path| file.path == Path::new(path));
        Row::sum("behind it", self.files.iter().filter(is_behind))
    }

    /// The sum of all source files.
    #[must_use]
    pub fn all(&self) -> Row<'static> {
        Row::sum("all crates", &self.files)
    }
}

/// The header, the crates, an empty line, the sums and the paper's rows.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>8} {:>8} {:>6} {:>8} {:>8}",
            "", "lines", "locking", "%", "files", "touched"
        )?;
        for row in self.crates() {
            writeln!(f, "{row}")?;
        }
        writeln!(f)?;
        for row in [self.interface(), self.behind(), self.all()].iter().chain(&PAPER) {
            writeln!(f, "{row}")?;
        }
        Ok(())
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let read =
        std::fs::read_dir(folder).map_err(named)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = read.collect::<io::Result<Vec<_>>>().map_err(named)?;
    paths.sort();
    Ok(paths)
}

/// Counts the source files below `folder`, except those that contain only tests or loom models.
fn add_folder(root: &Path, package: &str, folder: &Path, files: &mut Vec<File>) -> io::Result<()> {
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if name != "tests" {
                add_folder(root, package, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && name != "tests.rs"
            && name != "loom.rs"
            && name != "model_memory.rs"
        {
            let text = std::fs::read_to_string(&path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
            let relative = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
            files.push(File {
                package: package.to_owned(),
                path: relative,
                lines: Lines::of(&text),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary source tree, removed when dropped.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir()
                .join(format!("kumihimo-locking-{name}-{}", std::process::id()));
            let tree = Self(root);
            for (path, text) in files {
                let path = tree.0.join(path);
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
                std::fs::write(path, text).expect("written");
            }
            tree
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn with_behind(
        mut files: Vec<(&'static str, &'static str)>,
    ) -> Vec<(&'static str, &'static str)> {
        files.extend(BEHIND.map(|path| (path, "a.lock();\n")));
        files
    }

    #[test]
    fn crates_and_sums_are_counted() {
        let files = with_behind(vec![
            ("crates/resource/src/lib.rs", "a();\nb.lock();\n"),
            ("crates/resource/src/inner/more.rs", "c();\n"),
            ("crates/resource/src/tests.rs", "a.lock();\n"),
            ("crates/resource/src/inner/tests/a.rs", "a.lock();\n"),
            ("crates/resource/src/inner/loom.rs", "a.lock();\n"),
            ("crates/resource/src/notes.txt", "a.lock();\n"),
            ("crates/resource/tests/a.rs", "a.lock();\n"),
            ("crates/empty/Cargo.toml", ""),
        ]);
        let tree = Tree::new("sums", &files);
        let table = Table::count(&tree.0).expect("counted");
        let row = |name, code, locking, files, touched| Row {
            name,
            lines: Lines { code, locking },
            files,
            touched,
        };
        assert_eq!(
            table.crates(),
            [
                row("io", 1, 1, 1, 1),
                row("resource", 3, 1, 2, 1),
                row("runtime", 3, 3, 3, 3),
                row("sync", 2, 2, 2, 2)
            ]
        );
        assert_eq!(table.interface(), row("the resource interface", 3, 1, 2, 1));
        assert_eq!(table.behind(), row("behind it", 6, 6, 6, 6));
        assert_eq!(table.all(), row("all crates", 9, 7, 8, 7));
    }

    #[test]
    fn missing_module_behind_the_interface_is_an_error() {
        let tree = Tree::new("missing", &[("crates/resource/src/lib.rs", "a();\n")]);
        let error = Table::count(&tree.0).err().expect("refused");
        assert!(error.to_string().contains(BEHIND[0]), "{error}");
        assert!(Table::count(&tree.0.join("nowhere")).is_err());
    }

    #[test]
    fn rows_are_aligned_under_the_head() {
        let row =
            Row { name: "arch", lines: Lines { code: 3_082, locking: 24 }, files: 22, touched: 9 };
        assert_eq!(
            row.to_string(),
            "arch                             3082       24   0.78       22        9"
        );
        assert_eq!(
            Row::sum("none", []).to_string(),
            "none                                0        0   0.00        0        0"
        );
    }

    #[test]
    fn this_tree_is_counted() {
        let root = crate::sources().expect("tests run in their tree");
        let table = Table::count(&root).expect("counted").to_string();
        assert!(table.starts_with(
            "                                lines  locking      %    files  touched\narbiter "
        ));
        assert!(table.ends_with(
            "Linux 2.6.39 (P3)              737679     5033   0.68     1567      330\n"
        ));
    }
}
