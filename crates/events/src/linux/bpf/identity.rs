//! Finds the programs of another process at the tracepoint, and checks that they are the ones that
//! this process would have loaded.
//!
//! These have to be equal to those of a candidate that this process has loaded and not attached:
//! the name (a hash of the checked-in instructions), the tag (the kernel's hash of what was
//! loaded), the user that has loaded it, and kind, sizes, flags and name of each map. The tag
//! differs between kernel versions for the same instructions; so it is compared with one that the
//! running kernel has made. Another version of Kumihimo has another name and tag, and thus programs
//! of its own.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use kumihimo_arch::descriptor::Descriptor;

use super::ids::{self, MapShape, ObjectKind, ProgramInfo};
use super::sys;

/// What has to be equal in two programs that may stand for each other.
#[derive(PartialEq, Eq)]
struct Identity {
    kind: u32,
    tag: [u8; 8],
    user: u32,
    name: [u8; 16],
    /// In the order in which the instructions first use them, which is the same for one tag.
    maps: Vec<MapShape>,
}

/// Maps by name.
type NamedMaps = Vec<([u8; 16], Descriptor)>;

/// Of the programs at `sched_switch` and `sched_process_exec`.
pub(super) struct Identities {
    switch: Identity,
    exec: Identity,
}

impl Identities {
    pub(super) fn of(switch: &Descriptor, exec: &Descriptor) -> io::Result<Identities> {
        let of = |program: &Descriptor| {
            let found = identify(&ids::program(program.as_fd())?)?;
            found.map(|(identity, _)| identity).ok_or(io::Error::from(io::ErrorKind::NotFound))
        };
        Ok(Identities { switch: of(switch)?, exec: of(exec)? })
    }
}

/// The programs of another process, attached.
pub(super) struct Found {
    /// The id of the program at `sched_switch`.
    pub(super) program: u32,
    /// At `sched_switch` and `sched_process_exec`.
    pub(super) links: [Descriptor; 2],
    maps: NamedMaps,
}

impl Found {
    /// The map of this name, once.
    pub(super) fn take_map(&mut self, name: &str) -> Option<Descriptor> {
        let at = self.maps.iter().position(|(has, _)| *has == sys::name(name))?;
        Some(self.maps.swap_remove(at).1)
    }
}

/// A program's identity, and its maps by name; None: one is gone.
fn identify(program: &ProgramInfo) -> io::Result<Option<(Identity, NamedMaps)>> {
    let (mut shapes, mut maps) = (Vec::new(), Vec::new());
    for &id in &program.maps {
        let Some(map) = ids::open(ObjectKind::Map, id)? else { return Ok(None) };
        let (_, shape) = ids::map(map.as_fd())?;
        shapes.push(shape);
        maps.push((shape.name, map));
    }
    let ProgramInfo { kind, tag, user, name, .. } = *program;
    Ok(Some((Identity { kind, tag, user, name, maps: shapes }, maps)))
}

/// A link at `tracepoint` and its program; None: it is another link, or is gone.
fn link_at(id: u32, tracepoint: &str) -> io::Result<Option<(Descriptor, ProgramInfo)>> {
    let link = loop {
        match ids::open(ObjectKind::Link, id) {
            // EAGAIN: inside the system call that attaches it, which takes some milliseconds.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200));
            }
            done => break done?,
        }
    };
    let Some(link) = link else { return Ok(None) };
    let Some(info) = ids::link(link.as_fd())? else { return Ok(None) };
    if info.tracepoint.split(|byte| *byte == 0).next() != Some(tracepoint.as_bytes()) {
        return Ok(None);
    }
    let Some(program) = ids::open(ObjectKind::Program, info.program)? else { return Ok(None) };
    Ok(Some((link, ids::program(program.as_fd())?)))
}

/// The programs with the lowest link at `sched_switch` below `below` that are what is wanted. The
/// one at `sched_process_exec` has to change the same map, `threads`.
pub(super) fn find(wanted: &Identities, threads: &str, below: u32) -> io::Result<Option<Found>> {
    let links = ids::all(ObjectKind::Link)?;
    for &id in links.iter().take_while(|id| **id < below) {
        let Some((switch, program)) = link_at(id, "sched_switch")? else { continue };
        if (program.name, program.tag) != (wanted.switch.name, wanted.switch.tag) {
            continue;
        }
        let Some((identity, maps)) = identify(&program)? else { continue };
        let threads = maps.iter().find(|(name, _)| *name == sys::name(threads));
        let Some((_, threads)) = threads.filter(|_| identity == wanted.switch) else { continue };
        let (threads, _) = ids::map(threads.as_fd())?;
        let program = program.id;
        for &id in &links {
            let Some((exec, of)) = link_at(id, "sched_process_exec")? else { continue };
            if of.maps == [threads] && identify(&of)?.is_some_and(|(of, _)| of == wanted.exec) {
                return Ok(Some(Found { program, links: [switch, exec], maps }));
            }
        }
    }
    Ok(None)
}
