//! A program to run: where it is, and whether its threads can be microprocesses.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kumihimo::runtime::{Mode, mode};
use object::elf::{DT_NEEDED, PT_INTERP};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

/// Scripts may name scripts (execve(2)); the kernel follows this many.
const SCRIPTS: usize = 4;
/// The longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE: u64 = 256;

/// Why there is no program.
pub(crate) enum Missing {
    NotFound,
    NotExecutable(io::Error),
}

/// A program that exists.
pub(crate) struct Program {
    /// What is executed.
    pub(crate) path: PathBuf,
    /// The program that interprets it, if it is a script.
    pub(crate) interpreter: Option<PathBuf>,
}

impl Program {
    /// Finds the program as execvp(3) does: a name with a slash is a path, any other is looked up
    /// in the folders of PATH.
    pub(crate) fn find(name: &OsStr) -> Result<Program, Missing> {
        let path = if name.as_encoded_bytes().contains(&b'/') {
            check(Path::new(name))?;
            PathBuf::from(name)
        } else {
            in_path(name)?
        };
        let interpreter = interpreter_of(&path, SCRIPTS);
        Ok(Program { path, interpreter })
    }

    /// Whether the program has the interposed functions in it: the note of `kumihimo::interpose!`.
    pub(crate) fn is_interposed(&self) -> bool {
        let file = self.interpreter.as_ref().unwrap_or(&self.path);
        let Ok(bytes) = fs::read(file) else { return false };
        ElfFile64::<Endianness>::parse(&*bytes)
            .is_ok_and(|file| file.section_by_name(".note.kumihimo").is_some())
    }

    /// Whether it has a runtime of its own: it is written for Kumihimo.
    pub(crate) fn has_runtime(&self) -> bool {
        let file = self.interpreter.as_ref().unwrap_or(&self.path);
        let Ok(bytes) = fs::read(file) else { return false };
        ElfFile64::<Endianness>::parse(&*bytes).is_ok_and(|file| {
            file.section_by_name(".note.kumihimo.runtime").is_some()
                || needs(&file, "libkumihimo_c.so")
        })
    }

    /// Why its threads cannot be microprocesses, as half a sentence. `None` if they can.
    pub(crate) fn refusal(&self) -> Option<String> {
        if let Mode::KernelThreads { why } = mode() {
            return Some(format!("no microprocesses here: {why}"));
        }
        let file = self.interpreter.as_deref().unwrap_or(&self.path);
        if let Some(why) = gains_rights(file) {
            return Some(format!("it {why}, and the dynamic linker then preloads nothing"));
        }
        match fs::read(file) {
            Ok(bytes) => refusal_of(&bytes),
            Err(error) => Some(format!("{} cannot be read: {error}", file.display())),
        }
    }
}

fn check(path: &Path) -> Result<(), Missing> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            Err(Missing::NotExecutable(io::Error::from(io::ErrorKind::IsADirectory)))
        }
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Err(Missing::NotExecutable(io::Error::from(io::ErrorKind::PermissionDenied)))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Missing::NotFound),
        Err(error) => Err(Missing::NotExecutable(error)),
    }
}

fn in_path(name: &OsStr) -> Result<PathBuf, Missing> {
    // As execvp(3): an empty name would lead to the folders themselves.
    if name.is_empty() {
        return Err(Missing::NotFound);
    }
    // The default of execvp(3).
    let folders = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut missing = Missing::NotFound;
    for folder in std::env::split_paths(&folders) {
        let path = folder.join(name);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(Missing::NotFound) => {}
            Err(other) => missing = other,
        }
    }
    Err(missing)
}

/// The binary that interprets a script, which may be named by another script.
fn interpreter_of(path: &Path, depth: usize) -> Option<PathBuf> {
    let mut line = Vec::new();
    File::open(path).ok()?.take(FIRST_LINE).read_to_end(&mut line).ok()?;
    let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let first = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    // `env` finds the program that runs in the end.
    let named = if first.file_name() == Some(OsStr::new("env")) {
        words
            .find(|word| !word.starts_with(b"-") && !word.contains(&b'='))
            .and_then(|name| in_path(OsString::from_vec(name.to_vec()).as_os_str()).ok())
    } else {
        None
    };
    let found = named.unwrap_or(first);
    match depth {
        0 => Some(found),
        _ => interpreter_of(&found, depth - 1).or(Some(found)),
    }
}

/// How the file gives a process rights that its caller lacks (`AT_SECURE`, getauxval(3)).
fn gains_rights(file: &Path) -> Option<&'static str> {
    let found = fs::metadata(file).ok()?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if found.mode() & 0o4000 != 0 && found.uid() != user.as_raw() {
        return Some("is set-user-ID");
    }
    if found.mode() & 0o2010 == 0o2010 && found.gid() != group.as_raw() {
        return Some("is set-group-ID");
    }
    let mut value = [0; 64];
    let has_capabilities =
        rustix::fs::getxattr(file, "security.capability", &mut value[..]).is_ok();
    (has_capabilities && !user.is_root()).then_some("has file capabilities")
}

/// Why a program with this contents cannot run with the libraries.
fn refusal_of(bytes: &[u8]) -> Option<String> {
    let Ok(file) = ElfFile64::<Endianness>::parse(bytes) else {
        return Some("it is no 64-bit program in the ELF format".into());
    };
    if file.architecture() != object::Architecture::X86_64 {
        return Some(format!("it is for {:?}, not x86_64", file.architecture()));
    }
    let Some(linker) = dynamic_linker(&file) else {
        return Some("it is linked statically: no dynamic linker preloads anything".into());
    };
    if !linker.ends_with("/ld-linux-x86-64.so.2") {
        return Some(format!("its C library is not glibc: its dynamic linker is {linker}"));
    }
    if file.section_by_name(".note.go.buildid").is_some()
        || file.section_by_name(".go.buildinfo").is_some()
    {
        return Some(
            "it is written in Go, whose goroutines make system calls without the C library".into(),
        );
    }
    if file.section_by_name(".note.kumihimo.runtime").is_some() {
        return Some("it is written for Kumihimo, and has a runtime of its own".into());
    }
    if needs(&file, "libkumihimo_c.so") {
        return Some("it uses libkumihimo_c.so, which has a runtime of its own".into());
    }
    let mut symbols = file.dynamic_symbols().chain(file.symbols());
    if symbols.any(|symbol| symbol.name() == Ok("__tsan_init")) {
        return Some(
            "it is built with ThreadSanitizer, which keeps a state of its own of each kernel thread"
                .into(),
        );
    }
    None
}

fn dynamic_linker(file: &ElfFile64<'_, Endianness>) -> Option<String> {
    let (endian, bytes) = (file.endian(), file.data());
    let headers = file.elf_header().program_headers(endian, bytes).ok()?;
    let named = headers.iter().find(|header| header.p_type(endian) == PT_INTERP)?;
    let name = named.data(endian, bytes).ok()?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8(name[..end].to_vec()).ok()
}

/// Whether the dynamic linker loads a library whose name begins with `library`.
fn needs(file: &ElfFile64<'_, Endianness>, library: &str) -> bool {
    let (endian, bytes) = (file.endian(), file.data());
    let Ok(headers) = file.elf_header().program_headers(endian, bytes) else { return false };
    let Some(strings) = file.section_by_name(".dynstr").and_then(|strings| strings.data().ok())
    else {
        return false;
    };
    let entries = headers.iter().filter_map(|header| header.dynamic(endian, bytes).ok()?);
    entries.flatten().filter(|entry| entry.d_tag.get(endian) == DT_NEEDED).any(|entry| {
        let name = usize::try_from(entry.d_val.get(endian)).ok().and_then(|at| strings.get(at..));
        name.is_some_and(|name| name.starts_with(library.as_bytes()))
    })
}
