//! Recognises the readers and writers that end in a descriptor.
//!
//! std does this by specialisation, which is not stable. Here a table has the type IDs of the types
//! that occur: each descriptor, with up to three buffers, limits or references around it.

use std::any::TypeId;
use std::io::{BufReader, BufWriter, Read, Take, Write};
use std::sync::OnceLock;

use super::super::pipe::{PipeReader, PipeWriter};
use super::super::stdin::StdinLock;
use super::super::stdout::{StderrLock, StdoutLock};
use super::ends::{Sink, Source};
use crate::fs::File;
use crate::net::{TcpStream, UnixStream};
use crate::process::{ChildStderr, ChildStdin, ChildStdout};
use crate::type_view::type_id;

/// `reader` as a source, if its type is in the table.
pub(super) fn source<R: Read + ?Sized>(reader: &mut R) -> Option<&mut dyn Source> {
    static TABLE: OnceLock<Vec<(TypeId, AsSource)>> = OnceLock::new();
    let view = find(TABLE.get_or_init(|| sorted(sources())), type_id::<R>())?;
    // SAFETY: the entry has the type of `reader`, but for lifetimes. The result is borrowed for as
    // long as `reader`, and nothing with a lifetime of its type comes out of a `Source`.
    Some(unsafe { &mut *view(std::ptr::from_mut(reader).cast()) })
}

/// `writer` as a sink, if its type is in the table.
pub(super) fn sink<W: Write + ?Sized>(writer: &mut W) -> Option<&mut dyn Sink> {
    static TABLE: OnceLock<Vec<(TypeId, AsSink)>> = OnceLock::new();
    let view = find(TABLE.get_or_init(|| sorted(sinks())), type_id::<W>())?;
    // SAFETY: as above.
    Some(unsafe { &mut *view(std::ptr::from_mut(writer).cast()) })
}

type AsSource = fn(*mut ()) -> *mut dyn Source;
type AsSink = fn(*mut ()) -> *mut dyn Sink;

fn sorted<V>(mut table: Vec<(TypeId, V)>) -> Vec<(TypeId, V)> {
    table.sort_unstable_by_key(|&(id, _)| id);
    table
}

fn find<V: Copy>(table: &[(TypeId, V)], id: TypeId) -> Option<V> {
    let at = table.binary_search_by_key(&id, |&(id, _)| id).ok()?;
    Some(table[at].1)
}

fn sources() -> Vec<(TypeId, AsSource)> {
    fn entry<T: Source + 'static>() -> (TypeId, AsSource) {
        (TypeId::of::<T>(), |reader| reader.cast::<T>())
    }
    fn around<T: Source + 'static>() -> [(TypeId, AsSource); 13] {
        [
            entry::<T>(),
            entry::<&mut T>(),
            entry::<Take<T>>(),
            entry::<Take<&mut T>>(),
            entry::<&mut Take<T>>(),
            entry::<BufReader<T>>(),
            entry::<BufReader<&mut T>>(),
            entry::<BufReader<Take<T>>>(),
            entry::<&mut BufReader<T>>(),
            entry::<Take<BufReader<T>>>(),
            entry::<Take<&mut BufReader<T>>>(),
            entry::<&mut Take<BufReader<T>>>(),
            entry::<&mut Take<&mut BufReader<T>>>(),
        ]
    }
    [
        around::<File>(),
        around::<&File>(),
        around::<PipeReader>(),
        around::<&PipeReader>(),
        around::<ChildStdout>(),
        around::<&ChildStdout>(),
        around::<ChildStderr>(),
        around::<&ChildStderr>(),
        around::<TcpStream>(),
        around::<&TcpStream>(),
        around::<UnixStream>(),
        around::<&UnixStream>(),
        around::<StdinLock<'_>>(),
    ]
    .concat()
}

fn sinks() -> Vec<(TypeId, AsSink)> {
    fn entry<T: Sink + 'static>() -> (TypeId, AsSink) {
        (TypeId::of::<T>(), |writer| writer.cast::<T>())
    }
    fn around<T: Sink + 'static>() -> [(TypeId, AsSink); 5] {
        [
            entry::<T>(),
            entry::<&mut T>(),
            entry::<BufWriter<T>>(),
            entry::<BufWriter<&mut T>>(),
            entry::<&mut BufWriter<T>>(),
        ]
    }
    [
        around::<File>(),
        around::<&File>(),
        around::<PipeWriter>(),
        around::<&PipeWriter>(),
        around::<ChildStdin>(),
        around::<&ChildStdin>(),
        around::<TcpStream>(),
        around::<&TcpStream>(),
        around::<UnixStream>(),
        around::<&UnixStream>(),
        around::<StdoutLock<'_>>(),
        around::<StderrLock<'_>>(),
    ]
    .concat()
}
