//! This address space's place on the machine: its number, its resource table, and the control
//! socket at which it answers.
//!
//! Begins with the first runtime of the process, or the first handle or mailbox if that is made
//! before, and lasts as long as the process does: ids outlive a runtime. Without a number (no
//! run-time directory that can be used, or `KUMI_DIR=off`) everything runs as with one, except
//! that nobody outside sees it; ids are then of address space 0.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use kumihimo_machine::Error;
use kumihimo_machine::answer::Answer;
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
use crate::resource::control_socket::ControlSocket;

struct Member {
    number: Option<Arc<Number>>,
    /// As long as it is there the socket is served.
    control: Mutex<Option<Control>>,
    _answer: Arc<dyn Answer>,
    /// Why nobody outside sees it.
    alone: Option<String>,
}

static MEMBER: OnceLock<Member> = OnceLock::new();

/// Before the first microprocess of the process begins. Blocks the kernel thread: some tens of
/// microseconds.
///
/// # Errors
/// `InvalidInput`: this process has begun with another locking design.
pub(crate) fn begin(locking: Option<Locking>) -> io::Result<()> {
    let member = MEMBER.get_or_init(|| {
        fork::install_membership(forget);
        let (number, mut alone) = match Number::take() {
            Ok(number) => (Some(Arc::new(number)), None),
            Err(why) => (None, Some(why.to_string())),
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
        let answer: Arc<dyn Answer> = Arc::new(ControlSocket);
        let weak: Weak<dyn Answer> = Arc::downgrade(&answer);
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

/// The table of this address space, which joins the others of the machine if it has not yet: a kind
/// may be defined, or a resource opened, before the first runtime begins, and the ids would belong
/// to no address space otherwise. Blocks the kernel thread the first time.
pub fn table() -> &'static Table {
    if MEMBER.get().is_none() {
        // What is wrong with the environment is the first runtime's to say.
        let _ = begin(kumihimo_config::get().lab.locking.map(Locking::from));
    }
    table::table()
}

/// In the child of a fork: the number is the parent's. Async-signal-safe.
pub(crate) fn forget() {
    if let Some(number) = MEMBER.get().and_then(|member| member.number.as_ref()) {
        number.forget_in_child();
    }
}

/// This address space's number, by which others on the machine find it.
///
/// # Errors
/// Why it has none: no runtime has begun, `KUMI_DIR=off`, or what was in the way.
pub fn number() -> Result<u16, String> {
    let member = MEMBER.get().ok_or_else(|| "no runtime has begun in this process".to_owned())?;
    match (&member.alone, &member.number) {
        (None, Some(number)) => Ok(number.location().space()),
        (alone, _) => Err(alone.clone().unwrap_or_default()),
    }
}

/// The number itself, for what else is bound to it: the names of gates.
///
/// # Errors
/// As [`number`].
pub fn holder() -> Result<Arc<Number>, String> {
    let _ = table();
    let member = MEMBER.get().ok_or_else(|| "no runtime has begun in this process".to_owned())?;
    member.number.clone().ok_or_else(|| member.alone.clone().unwrap_or_default())
}

/// Tells address space `number` that something on the board concerns it. Some microseconds; never
/// blocks, allocates nothing.
pub(crate) fn tell(number: u16) {
    if let Some(own) = MEMBER.get().and_then(|member| member.number.as_ref()) {
        own.tell(number);
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

/// Lets user `uid` see and steer the microprocesses of this address space too, beside its own user
/// and root. See [`Control::allow`](kumihimo_machine::space::Control::allow) for what else that
/// takes.
///
/// # Errors
/// `NotConnected`: there is no control socket. What changing modes says.
pub fn allow(uid: u32) -> io::Result<()> {
    at_control(|control| control.allow(uid))
}

/// Takes that back, from the next request on. False: they were not let in.
///
/// # Errors
/// As [`allow`].
pub fn disallow(uid: u32) -> io::Result<bool> {
    at_control(|control| control.disallow(uid))
}
