//! Names and source lines of code addresses, from the debug information and symbols of the loaded
//! files.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use addr2line::Loader;

use crate::unwind::Loaded;

/// A source line in a backtrace. An address has several if calls were inlined, innermost first.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name of the function, or file and address where it is unknown. May be empty.
    pub function: String,
    /// Path of the source file. Empty if it is unknown.
    pub file: String,
    /// Line in the source file. 0 if it is unknown.
    pub line: u32,
}

/// An address with its lines, innermost first.
pub type Call = (u64, Rc<[Line]>);

/// The part of the process that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Program,
    /// The runtime or the context switch.
    Runtime,
    /// The frames of std and core between a closure and its catch_unwind, or the begin of its
    /// thread.
    Machinery,
}

impl Line {
    fn whose(&self) -> Whose {
        let (function, file) = (self.function.trim_start_matches('<'), &*self.file);
        // With line tables only, inlined functions have no path: then the file decides.
        let runtime = ["kumihimo_runtime::", "kumihimo_arch::"]
            .iter()
            .any(|path| function.starts_with(path))
            || ["crates/runtime/src/", "crates/arch/src/", "/kumihimo-runtime-", "/kumihimo-arch-"]
                .iter()
                .any(|path| file.contains(path));
        let machinery = || {
            [
                "/std/src/panicking.rs",
                "/std/src/panic.rs",
                "/core/src/panic/unwind_safe.rs",
                "/std/src/sys/backtrace.rs",
                "/std/src/sys/thread/unix.rs",
                "/std/src/sys/pal/unix/thread.rs",
                "/std/src/thread/lifecycle.rs",
                "/std/src/thread/mod.rs",
                "/core/src/ops/function.rs",
                "/alloc/src/boxed.rs",
            ]
            .iter()
            .any(|path| file.ends_with(path))
                || [
                    "__rust_try",
                    "core::ops::function::",
                    "std::panicking::",
                    "std::panic::",
                    "std::sys::backtrace::",
                    "std::sys::thread::",
                    "std::sys::pal::unix::thread::",
                    "std::thread::lifecycle::",
                    "std::thread::Builder::spawn_unchecked",
                    "alloc::boxed::Box<dyn core::ops::function::FnOnce",
                ]
                .iter()
                .any(|f| function.starts_with(f))
        };
        match () {
            () if runtime => Whose::Runtime,
            () if machinery() => Whose::Machinery,
            () => Whose::Program,
        }
    }
}

/// Resolves names. Files are mapped and parsed on demand: the first address in a file costs some
/// ten milliseconds, and megabytes.
pub struct Symbols {
    files: Vec<(Loaded, Option<Option<Loader>>)>,
    known: HashMap<u64, Rc<[Line]>>,
}

impl Symbols {
    /// Creates a resolver for these files: see [`Walker::modules`](crate::Walker::modules).
    #[must_use]
    pub fn new(modules: Vec<Loaded>) -> Symbols {
        Symbols {
            files: modules.into_iter().map(|module| (module, None)).collect(),
            known: HashMap::new(),
        }
    }

    /// Renders the backtrace as numbered lines. Omits the runtime's frames of the wait, and the
    /// frames below the program's own closure.
    pub fn render(&mut self, frames: &[u64], out: &mut String) {
        let lines: Vec<Line> =
            frames.iter().flat_map(|&address| self.lines(address).to_vec()).collect();
        let end = lines
            .iter()
            .rposition(|line| line.whose() == Whose::Program)
            .map_or(lines.len(), |last| last + 1);
        let inner = lines[..end].iter().take_while(|line| line.whose() == Whose::Runtime).count();
        // One runtime frame stays: the called function.
        let begin = if inner == end { 0 } else { inner.saturating_sub(1) };
        write(&lines[begin..end], out);
    }

    /// As [`Symbols::render`], but omits nothing.
    pub fn render_all(&mut self, frames: &[u64], out: &mut String) {
        let lines: Vec<Line> =
            frames.iter().flat_map(|&address| self.lines(address).to_vec()).collect();
        write(&lines, out);
    }

    /// Returns the addresses of a backtrace with their lines. Omits the frames below the program's
    /// own closure and, if the code `waits`, the runtime's frames of the wait except the called
    /// function.
    pub fn calls(&mut self, frames: &[u64], waits: bool) -> Vec<Call> {
        let mut calls: Vec<Call> =
            frames.iter().map(|&address| (address, self.lines(address))).collect();
        let has = |(_, lines): &Call, whose| lines.iter().any(|line| line.whose() == whose);
        let last = calls.iter().rposition(|call| has(call, Whose::Program));
        calls.truncate(last.map_or(calls.len(), |last| last + 1));
        if waits {
            omit_wait(&mut calls);
        }
        calls
    }

    /// Returns the name of the function at `address`.
    pub fn name(&mut self, address: u64) -> String {
        self.lines(address).last().map_or_else(String::new, |line| line.function.clone())
    }

    fn lines(&mut self, address: u64) -> Rc<[Line]> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let lines: Rc<[Line]> = self.look_up(address).into();
        self.known.insert(address, lines.clone());
        lines
    }

    fn look_up(&mut self, address: u64) -> Vec<Line> {
        let unknown = |function| vec![Line { function, file: String::new(), line: 0 }];
        let Some((file, loader)) =
            self.files.iter_mut().find(|(file, _)| file.addresses.contains(&address))
        else {
            return unknown(format!("{address:#x}"));
        };
        let at = address - file.bias;
        let path = &file.path;
        let loader = loader.get_or_insert_with(|| {
            if path.as_os_str().is_empty() { None } else { Loader::new(path).ok() }
        });
        let elsewhere = || format!("{}+{at:#x}", path.display());
        let Some(loader) = loader else { return unknown(elsewhere()) };
        let symbol = || {
            loader
                .find_symbol(at)
                .map(|name| addr2line::demangle_auto(name.into(), None).into_owned())
        };
        let mut lines = Vec::new();
        if let Ok(mut frames) = loader.find_frames(at) {
            while let Ok(Some(frame)) = frames.next() {
                let function = frame
                    .function
                    .as_ref()
                    .and_then(|f| f.demangle().ok().map(|name| name.into_owned()));
                let (file, line) = frame.location.map_or((String::new(), 0), |l| {
                    (l.file.unwrap_or_default().to_owned(), l.line.unwrap_or(0))
                });
                lines.push(Line { function: function.unwrap_or_default(), file, line });
            }
        }
        // The symbol names the outermost function. It is used if there is no debug information for
        // that function.
        if let Some(outer) = lines.last_mut() {
            if outer.function.is_empty() {
                outer.function = symbol().unwrap_or_else(elsewhere);
            }
            return lines;
        }
        unknown(symbol().unwrap_or_else(elsewhere))
    }
}

/// Removes the innermost lines that are the runtime's, except the last one: the called function.
fn omit_wait(calls: &mut Vec<Call>) {
    let lines = calls.iter().flat_map(|(_, lines)| lines.iter());
    let inner = lines.take_while(|line| line.whose() == Whose::Runtime).count();
    if inner == calls.iter().map(|(_, lines)| lines.len()).sum() {
        return;
    }
    let mut omitted = inner.saturating_sub(1);
    let whole = calls
        .iter()
        .take_while(|(_, lines)| {
            let is_whole = lines.len() <= omitted;
            omitted -= if is_whole { lines.len() } else { 0 };
            is_whole
        })
        .count();
    calls.drain(..whole);
    if let Some((_, lines)) = calls.first_mut().filter(|_| omitted > 0) {
        *lines = lines[omitted..].into();
    }
}

fn write(lines: &[Line], out: &mut String) {
    for (i, line) in lines.iter().enumerate() {
        let _ = writeln!(out, "  {i:>4}: {}", line.function);
        if !line.file.is_empty() {
            let _ = writeln!(out, "           at {}:{}", line.file, line.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(address: u64, functions: &[&str]) -> Call {
        let line = |name: &&str| Line { function: (*name).into(), file: String::new(), line: 1 };
        (address, functions.iter().map(line).collect())
    }

    fn names(calls: &[Call]) -> Vec<(u64, &str)> {
        calls
            .iter()
            .flat_map(|(address, lines)| lines.iter().map(|line| (*address, &*line.function)))
            .collect()
    }

    #[test]
    fn runtime_frames_of_a_wait_are_omitted_except_the_called_function() {
        let switch = "kumihimo_arch::switch";
        let park = "kumihimo_runtime::park";
        for (mut calls, want) in [
            (
                // Inlined into the program's function.
                vec![call(1, &[switch, park, "lock"]), call(2, &["work"])],
                vec![(1, park), (1, "lock"), (2, "work")],
            ),
            (
                vec![call(1, &[switch]), call(2, &[park]), call(3, &["lock"])],
                vec![(2, park), (3, "lock")],
            ),
            (vec![call(1, &[switch, park])], vec![(1, switch), (1, park)]),
            (vec![call(1, &["lock"])], vec![(1, "lock")]),
            (vec![], vec![]),
        ] {
            omit_wait(&mut calls);
            assert_eq!(names(&calls), want);
        }
    }
}
