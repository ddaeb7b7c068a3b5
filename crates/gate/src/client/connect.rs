//! Connecting to a gate: from its name to the client's side of a link.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_machine::Machine;
use kumihimo_runtime::{membership, runtime, thread};

use crate::client::client_link::ClientLink;
use crate::error::{Error, ErrorKind};
use crate::handshake::record::{Hello, LaneSize};
use crate::lane::{ClientEnd, Geometry};
use crate::link::endpoint::HasEndpoint;
use crate::link::link_poller::LinkPoller;
use crate::link::notifier::Notifier;
use crate::link::{link_index, wake_address};
use crate::options::Options;

/// Longest time to wait for the server: the kernel's clocks take no more.
const LONGEST: Duration = Duration::from_secs(1 << 30);

/// Connects to gate `name`. `types` is the hash of its types; `None` for bytes. Blocks the
/// microprocess.
///
/// # Errors
/// See [`Gate::connect`](crate::Gate::connect).
pub(super) fn connect(
    name: &str,
    options: &Options,
    types: Option<u64>,
) -> Result<Arc<ClientLink>, Error> {
    open_link(name, options, types).map_err(|e| e.of_gate(name))
}

fn open_link(name: &str, options: &Options, types: Option<u64>) -> Result<Arc<ClientLink>, Error> {
    Error::unless_supported()?;
    runtime::ensure()
        .map_err(|e| Error::new(ErrorKind::Io, format!("gate {name:?}: no runtime: {e}")))?;
    // Joins the machine, so that the server sees this address space and shares its board.
    let _ = membership::table();
    let bit = link_index::next_bit();
    let hello = Hello {
        name: name.to_owned(),
        types,
        size: LaneSize::default(),
        wake_address: wake_address::own(bit),
        placement: options.placement,
        origin: options.origin.clone(),
    };
    let poller = LinkPoller::of_process();
    let machine = options.directory.as_deref().map_or_else(Machine::mine, Machine::at)?;
    let established =
        thread::blocking(|| poller.connect(&machine, &hello, options.patience.min(LONGEST)))?;
    let welcome = established.welcome;
    let geometry = Geometry::checked(welcome.size.cells, welcome.size.inline)?;
    let lane = ClientEnd::open(established.lane.as_fd(), geometry)?;
    let notifier = Notifier::new(wake_address::peer(welcome.wake_address), bit, options.placement);
    let space = machine.gate(name).ok().flatten().unwrap_or(0);
    let client = ClientLink::new(name, space, options.most, lane, notifier);
    poller.attach(established, |link| {
        client.begin(link, bit);
        client.clone()
    })
    // VPs poll it already.
    .inspect_err(|why| client.end_with(why.clone()))?;
    Ok(client)
}
