//! This address space's membership of the machine: its number, its resource table, and its control
//! socket.
//!
//! The membership begins with the first runtime of the process, or with the first handle or mailbox
//! if that is created before. It lasts for the lifetime of the process, because IDs outlive a
//! runtime. Without a number (no usable run-time directory, or `KUMI_DIR=off`) everything works,
//! but the process is not visible from outside, and its IDs have address space 0.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use kumihimo_config::MachineDir;
use kumihimo_machine::Error;
use kumihimo_machine::handler::{ControlHandler, Metric};
use kumihimo_machine::space::{Control, Number};
use kumihimo_resource::id::Location;
use kumihimo_resource::locking::Locking;
use kumihimo_resource::serials::Generations;
use kumihimo_resource::table::{self, Table};

use crate::kernel_thread::fork;
use crate::kernel_thread::no_events::lock;
use crate::microprocess::identity;
use crate::process::board;
use crate::resource::builtin_kinds;
use crate::resource::control_socket::{ControlSocket, GATE_METRICS};

struct Member {
    number: Option<Arc<Number>>,
    /// While this exists, the socket is served.
    control: Mutex<Option<Control>>,
    _answer: Arc<dyn ControlHandler>,
    /// Why the process is not visible from outside, if so.
    alone: Option<String>,
}

static MEMBER: OnceLock<Member> = OnceLock::new();

/// Has the metrics of this process include those that `read` returns: those of gates.
#[doc(hidden)]
pub fn add_gate_metrics(read: fn() -> Vec<Metric>) {
    let _ = GATE_METRICS.set(read);
}

/// Begins the membership. Called before the first microprocess of the process begins. Blocks the
/// kernel thread for some tens of microseconds.
///
/// # Errors
/// `InvalidInput` if this process has begun with another locking design.
pub(crate) fn begin(locking: Option<Locking>) -> io::Result<()> {
    let member = MEMBER.get_or_init(|| {
        fork::install_membership(forget);
        let (number, mut alone) = match Number::take() {
            Ok(number) => {
                report_passed_over(&number);
                (Some(Arc::new(number)), None)
            }
            Err(why) => {
                report_invisible(&why);
                (None, Some(why.to_string()))
            }
        };
        board::register(board::Machine {
            directory: || Ok(holder()?.directory().to_owned()),
            tell,
        });
        let (location, generations) = number.as_ref().map_or_else(
            || (Location::NOWHERE, Generations::unclaimed()),
            |number| {
                (number.location(), Generations::new(number.first_generation(), number.claim()))
            },
        );
        let (Ok(table) | Err(table)) =
            table::begin(location, generations, locking.unwrap_or_default());
        identity::begin(table);
        builtin_kinds::define(table);
        let answer: Arc<dyn ControlHandler> = Arc::new(ControlSocket);
        let weak: Weak<dyn ControlHandler> = Arc::downgrade(&answer);
        let control =
            number.as_ref().and_then(|number| match Control::start(number.clone(), weak) {
                Ok(control) => Some(control),
                Err(why) => {
                    alone = Some(why.to_string());
                    None
                }
            });
        Member { number, control: Mutex::new(control), _answer: answer, alone }
    });
    debug_assert!(member.number.is_some() || member.alone.is_some());
    let has = table::table().locking();
    match locking {
        Some(wanted) if wanted != has => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "this process's resource table has begun with locking design {has}, and cannot change to {wanted}: choose before the first runtime"
            ),
        )),
        _ => Ok(()),
    }
}

/// Reports on standard error why the first place of the run-time directory is not used, if another
/// user or a wrong mode prevents it. Called once.
fn report_passed_over(number: &Number) {
    let used = number.directory().display();
    for why in number.passed_over() {
        let _ = writeln!(io::stderr(), "kumihimo: {why}; {used} is used instead");
    }
}

/// Reports that the process has no number, unless the program or its user asked for none.
fn report_invisible(why: &Error) {
    // An invalid setting is the error of the runtime's start.
    let is_unasked = kumihimo_config::check().is_ok_and(|config| config.dir != MachineDir::Off);
    if is_unasked {
        let _ = writeln!(
            io::stderr(),
            "kumihimo: this process is not visible to kumi ps, and has no gates: {why} (KUMI_DIR=off does without, and without this line)"
        );
    }
}

/// Returns the table of this address space, and begins its membership if necessary. A kind may be
/// defined, or a resource opened, before the first runtime begins; the IDs would belong to no
/// address space otherwise. Blocks the kernel thread the first time.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Kind, table};
///
/// let mut spaces = Vec::new();
/// table().usage(Some(Kind::SPACE), &mut |_id, usage| spaces.push(usage.state));
/// assert!(spaces[0].starts_with(&format!("process {}", std::process::id())));
/// ```
pub fn table() -> &'static Table {
    if MEMBER.get().is_none() {
        // An invalid environment is reported by the first runtime.
        let _ = begin(kumihimo_config::get().lab.locking.and_then(|of| of.name().parse().ok()));
    }
    table::table()
}

/// Forgets the number in the child of a fork, where it belongs to the parent. Async-signal-safe.
pub(crate) fn forget() {
    if let Some(number) = MEMBER.get().and_then(|member| member.number.as_ref()) {
        number.forget_in_child();
    }
}

/// Returns this address space's number, by which others on the machine find it.
///
/// # Errors
/// Why it has none: no runtime has begun, `KUMI_DIR=off`, or the error that prevented it.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine;
/// use kumihimo::thread;
///
/// assert!(machine::number().is_err(), "no runtime has begun");
/// let id = thread::spawn(|| {}).thread().id().resource().expect("it is a microprocess");
/// assert_eq!(machine::number(), Ok(id.location().space()));
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn number() -> Result<u16, String> {
    let member = MEMBER.get().ok_or_else(|| "no runtime has begun in this process".to_owned())?;
    match (&member.alone, &member.number) {
        (None, Some(number)) => Ok(number.location().space()),
        (alone, _) => Err(alone.clone().unwrap_or_default()),
    }
}

/// Returns the number's owner, to which other names are bound: those of gates.
///
/// # Errors
/// As [`number`].
pub fn holder() -> Result<Arc<Number>, String> {
    let _ = table();
    let member = MEMBER.get().ok_or_else(|| "no runtime has begun in this process".to_owned())?;
    member.number.clone().ok_or_else(|| member.alone.clone().unwrap_or_default())
}

/// Notifies address space `number` that a change of the board concerns it. Takes some microseconds;
/// never blocks, allocates nothing.
pub(crate) fn tell(number: u16) {
    if let Some(own) = MEMBER.get().and_then(|member| member.number.as_ref()) {
        own.notify(number);
    }
}

fn at_control<R>(f: impl FnOnce(&Control) -> Result<R, Error>) -> io::Result<R> {
    let control = MEMBER.get().map(|member| lock(&member.control));
    match control.as_deref() {
        Some(Some(control)) => f(control).map_err(io::Error::other),
        _ => {
            let why = number().err().unwrap_or_default();
            Err(io::Error::new(
                io::ErrorKind::NotConnected,
                format!("this address space has no control socket: {why}"),
            ))
        }
    }
}

/// Lets user `uid` list and control the microprocesses of this address space, in addition to its
/// own user and root. See [`Control::allow`](kumihimo_machine::space::Control::allow) for the
/// further requirements.
///
/// # Errors
/// `NotConnected` if there is no control socket; otherwise the error of changing file modes.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::{machine, runtime};
///
/// runtime::ensure()?;
/// machine::allow(33)?;
/// // User 33 may now list and control the microprocesses of this process.
/// assert!(machine::disallow(33)?);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn allow(uid: u32) -> io::Result<()> {
    at_control(|control| control.allow(uid))
}

/// Revokes [`allow`], from the next request on. Returns false if the user was not allowed.
///
/// # Errors
/// As [`allow`].
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::{machine, runtime};
///
/// runtime::ensure()?;
/// assert!(!machine::disallow(33)?, "the user was not allowed");
/// machine::allow(33)?;
/// assert!(machine::disallow(33)?);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn disallow(uid: u32) -> io::Result<bool> {
    at_control(|control| control.disallow(uid))
}
