//! The two shared libraries that `kumi run` has the dynamic linker load into a program.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol};

/// The names that the program calls, and what they do. In the order in which the dynamic linker
/// searches them.
const NAMES: [&str; 2] = ["libkumihimo_preload.so", "libkumihimo_run.so"];
/// Symbol of the second library with its version, padded with zeros.
const VERSION: &str = "KUMIHIMO_INTERPOSE_VERSION";

/// Both libraries.
pub(crate) struct Preload {
    files: [PathBuf; 2],
}

impl Preload {
    /// Finds the libraries beside this program, where Cargo builds them, or where `make install`
    /// puts them.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub(crate) fn find() -> Result<Preload, String> {
        let own = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
        let beside = own.parent().unwrap_or(Path::new("/"));
        let folders = [beside.to_owned(), beside.join("../lib/kumihimo")];
        let folder = folders.iter().find(|folder| folder.join(NAMES[1]).is_file()).ok_or_else(|| {
            format!(
                "{} is neither in {} nor in ../lib/kumihimo beside it: install it, or build it with cargo build --release",
                NAMES[1],
                beside.display()
            )
        })?;
        let preload = Preload { files: NAMES.map(|name| folder.join(name)) };
        for file in &preload.files {
            // The dynamic linker separates names by these (ld.so(8)).
            if file.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
                return Err(format!(
                    "the path {} has a space or a colon, at which LD_PRELOAD is cut: install kumi elsewhere",
                    file.display()
                ));
            }
        }
        preload.check_version()?;
        Ok(preload)
    }

    fn check_version(&self) -> Result<(), String> {
        let [names, functions] = &self.files;
        if !names.is_file() {
            return Err(format!("{} is missing beside {}", NAMES[0], functions.display()));
        }
        let wanted = env!("CARGO_PKG_VERSION");
        let found = version(functions)
            .ok_or_else(|| format!("{} is no library of kumi run", functions.display()))?;
        if found == wanted {
            return Ok(());
        }
        Err(format!(
            "{} is of version {found} and kumi of {wanted}: install both from one build",
            functions.display()
        ))
    }

    /// The value of LD_PRELOAD: both libraries, and what was there before.
    pub(crate) fn variable(&self, before: Option<&OsStr>) -> OsString {
        let mut value = self.files[0].clone().into_os_string();
        value.push(":");
        value.push(&self.files[1]);
        if let Some(before) = before {
            value.push(":");
            value.push(before);
        }
        value
    }
}

/// The version of the library in `file`; `None` if it is no such library.
fn version(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    let library = object::File::parse(&*bytes).ok()?;
    let symbol = library.dynamic_symbols().find(|symbol| symbol.name() == Ok(VERSION))?;
    let section = library.section_by_index(symbol.section_index()?).ok()?;
    let data = section.data_range(symbol.address(), symbol.size()).ok()??;
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    String::from_utf8(data[..end].to_vec()).ok()
}
