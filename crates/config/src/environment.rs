//! Configuration of this process, parsed from its environment.

use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::error::{Error, Problem, Why};
use crate::lab::{self, KEYS};
use crate::refused;
use crate::table::{Config, LAB, Line, Origin, STACK, VARIABLES, rust_min_stack};

/// Result of parsing the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) config: Config,
    pub(crate) error: Option<Error>,
    /// Variables with a valid value, and that value.
    given: Vec<(&'static str, String)>,
    /// Keys of `KUMI_LAB` with a valid value, and that value.
    pairs: Vec<(&'static str, String)>,
}

impl Parsed {
    /// Parses the variables that `lookup` finds.
    pub(crate) fn of(lookup: impl Fn(&str) -> Option<OsString>) -> Parsed {
        let mut parsed = Parsed::default();
        let mut problems = Vec::new();
        let value_of = |name: &str| lookup(name).filter(|value| !value.is_empty());
        for setting in &VARIABLES {
            let Some(value) = value_of(setting.name) else { continue };
            if (setting.read)(&mut parsed.config, &value) {
                parsed.given.push((setting.name, shown(&value)));
            } else {
                problems.push(Problem {
                    variable: setting.name.to_owned(),
                    value: shown(&value),
                    why: Why::Expected(setting.allowed.to_owned()),
                });
            }
        }
        parsed.config.rust_min_stack = rust_min_stack(&lookup);
        if let Some(list) = value_of(LAB).as_deref().and_then(OsStr::to_str) {
            parsed.pairs = lab::read(&mut parsed.config.lab, list, &mut problems);
        }
        problems.extend(refused::problems(value_of));
        parsed.error = (!problems.is_empty()).then_some(Error { problems });
        parsed
    }

    pub(crate) fn describe(&self, is_privileged: bool) -> Vec<Line> {
        let problems = self.error.as_ref().map_or(&[][..], Error::problems);
        let line = |name: String, given: Option<&str>, is_refused: bool, known: (&str, Origin)| {
            let (default, origin) = known;
            let origin = match given {
                Some(_) => origin,
                None if is_privileged => Origin::Privileged,
                None if is_refused => Origin::Refused,
                None => Origin::Default,
            };
            Line { name, value: given.unwrap_or(default).to_owned(), origin, effect: "" }
        };
        let find = |all: &'_ [(&'static str, String)], name: &str| {
            all.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone())
        };
        let variables = VARIABLES.iter().map(|setting| {
            let given = find(&self.given, setting.name);
            let is_refused = problems.iter().any(|problem| problem.variable == setting.name);
            let std = self.config.rust_min_stack.filter(|_| setting.name == STACK && !is_refused);
            let (given, origin) = match (given, std) {
                (None, Some(bytes)) => (Some(bytes.to_string()), Origin::Std),
                (given, _) => (given, Origin::Environment),
            };
            let known = (setting.default, origin);
            let line = line(setting.name.to_owned(), given.as_deref(), is_refused, known);
            Line { effect: setting.effect, ..line }
        });
        let keys = KEYS.iter().map(|key| {
            let given = find(&self.pairs, key.name);
            let is_refused = problems.iter().any(|problem| {
                problem.variable == LAB && lab::pairs(&problem.value).any(|(k, _)| k == key.name)
            });
            let known = (key.default, Origin::Lab);
            let line = line(format!("lab {}", key.name), given.as_deref(), is_refused, known);
            Line { effect: key.effect, ..line }
        });
        variables.chain(keys).collect()
    }
}

fn shown(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// Parses the environment at the first call. Later changes of the environment have no effect. The
/// child of a fork has its parent's result. The first call allocates, so it must not happen in a
/// signal handler.
///
/// Not a `OnceLock`: the child of a fork may inherit one that another thread is initialising, and
/// would wait for that thread for ever. Here two threads may parse concurrently, and the first
/// result stays.
fn parsed() -> &'static Parsed {
    static PARSED: AtomicPtr<Parsed> = AtomicPtr::new(std::ptr::null_mut());
    // Acquire: pairs with the release of the exchange, so the contents are visible.
    let found = PARSED.load(Ordering::Acquire);
    if !found.is_null() {
        // SAFETY: a pointer that is not null comes from `Box::into_raw` below, and is never freed
        // or written again.
        return unsafe { &*found };
    }
    let fresh =
        if is_privileged() { Parsed::default() } else { Parsed::of(|name| std::env::var_os(name)) };
    let fresh = Box::into_raw(Box::new(fresh));
    let stays = match PARSED.compare_exchange(
        std::ptr::null_mut(),
        fresh,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => fresh,
        Err(first) => {
            // SAFETY: from `Box::into_raw` above, and no other thread has seen the pointer.
            drop(unsafe { Box::from_raw(fresh) });
            first
        }
    };
    // SAFETY: as above.
    unsafe { &*stays }
}

/// Returns the settings of this process. A setting with an invalid value has its default. The first
/// call must not be in a signal handler.
#[must_use]
pub fn get() -> &'static Config {
    &parsed().config
}

/// Returns the settings of this process, if all of them are valid.
///
/// # Errors
/// The invalid variables, with the values that are allowed.
pub fn check() -> Result<&'static Config, &'static Error> {
    let parsed = parsed();
    match &parsed.error {
        None => Ok(&parsed.config),
        Some(error) => Err(error),
    }
}

/// Returns each setting of this process: the variables first, then the keys of `KUMI_LAB`.
#[must_use]
pub fn describe() -> Vec<Line> {
    parsed().describe(is_privileged())
}

/// Returns whether this process has rights that its caller may not have. The kernel sets
/// `AT_SECURE` for programs that are set-user-id or set-group-id, or have file capabilities
/// (getauxval(3)). Their environment is not trusted.
#[must_use]
pub fn is_privileged() -> bool {
    // SAFETY: getauxval only reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns the current value of a variable of another specification, such as `XDG_RUNTIME_DIR`.
/// `None` in a [privileged process](is_privileged), and if it is unset or empty.
#[must_use]
pub fn trusted_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !is_privileged() && !value.is_empty())
}

/// Returns a value of `KUMI_LAB` for a child process: this process's own pairs, with `pairs`
/// replacing pairs of the same keys. A pair without a value (`tls=`) removes its key.
#[must_use]
pub fn lab_with(pairs: &str) -> String {
    let own = std::env::var(LAB).unwrap_or_default();
    lab::merge(&own, pairs)
}
