//! A served gate as its owner has it: from publishing its name to closing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kumihimo_runtime::{cancel, membership, park, runtime};

use crate::error::{Error, ErrorKind};
use crate::handshake::record::{Hello, LaneSize};
use crate::lane::{Geometry, ServerEnd};
use crate::link::fork;
use crate::link::link_poller::{Admission, Admitted, LinkPoller};
use crate::link::notifier::Notifier;
use crate::link::{link_index, wake_address};
use crate::metrics;
use crate::options::{Options, Placement};
use crate::quota::{self, LinkAccount};
use crate::resource_entry::{self, ResourceEntry};
use crate::server::server_link::{ServerLink, Service};
use crate::wire::peer::Peer;
use crate::wire::type_hash;

/// A gate that is served. Dropping it closes the gate: its name is removed, and callers get `Gone`.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{ErrorKind, Gate};
///
/// let serving = Gate::serve("square", |n: u32| n * n)?;
/// assert!(Gate::<u32, u32>::connect("square").is_ok());
/// drop(serving);
/// let error = Gate::<u32, u32>::connect("square").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Debug)]
pub struct Serving {
    pub(super) service: Arc<Service>,
    resource_entry: Option<ResourceEntry>,
}

impl Serving {
    /// The gate's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    ///
    /// let serving = Gate::serve("square", |n: u32| n * n)?;
    /// assert_eq!(serving.name(), "square");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.service.name
    }

    /// Requests handled so far.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    ///
    /// let serving = Gate::serve("square", |n: u32| n * n)?;
    /// let square = Gate::<u32, u32>::connect("square")?;
    /// (1..=3).try_for_each(|n| square.call(&n).map(drop))?;
    /// assert_eq!(serving.handled(), 3);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.service.handled.load(Ordering::Relaxed)
    }

    /// Serves until the process ends.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    ///
    /// Gate::serve("square", |n: u32| n * n)?.forever();
    /// assert_eq!(Gate::<u32, u32>::connect("square")?.call(&4)?, 16);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn forever(self) {
        std::mem::forget(self);
    }

    /// Serves until the gate is ended from outside by its id (`kumi cancel`,
    /// [`Neighbour::act`](kumihimo_machine::Neighbour::act)), and returns that as `Gone`. Blocks
    /// the microprocess; a cancellation point.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Gate};
    /// use kumihimo::resource::{Command, Name, table};
    /// use kumihimo::thread;
    ///
    /// let serving = Gate::serve("square", |n: u32| n * n)?;
    /// let waits = thread::spawn(|| serving.wait());
    ///
    /// // As `kumi cancel` does from another process.
    /// let id = table().names().find(&Name::parse("/gate/square")?)?;
    /// table().control(id, &Command::Cancel)?;
    /// assert_eq!(waits.join().unwrap().kind(), ErrorKind::Gone);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait(self) -> Error {
        while !self.service.notify_when_closed(&park::current()) {
            // Before the park: a cancellation leaves one permit, which an earlier wait of the
            // caller may have taken.
            cancel::point();
            park::park(park::Wait::Gate(0), None);
        }
        Error::new(
            ErrorKind::Gone,
            format!("gate {:?} was ended from outside, by its id", self.service.name),
        )
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if fork::in_forked_child() {
            return std::mem::forget(self.resource_entry.take());
        }
        self.service.unpublish();
        self.service.close();
    }
}

/// Opens a gate.
pub(crate) fn open(
    name: &str,
    options: &Options,
    types: Option<u64>,
    single: bool,
) -> Result<Serving, Error> {
    opened(name, options, types, single).map_err(|e| e.of_gate(name))
}

fn opened(
    name: &str,
    options: &Options,
    types: Option<u64>,
    single: bool,
) -> Result<Serving, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Error::unless_supported()?;
    let geometry = Geometry::fitting(options.in_flight, options.inline)?;
    runtime::ensure()
        .map_err(|e| Error::new(ErrorKind::Io, format!("gate {name:?}: no runtime: {e}")))?;
    let number = membership::holder().map_err(|why| {
        Error::new(
            ErrorKind::Io,
            format!("gate {name:?}: this process has no place on the machine where it could be found: {why}"),
        )
    })?;
    let space = u32::from(number.location().space());
    let word = space << 20 | NEXT.fetch_add(1, Ordering::Relaxed) & 0xf_ffff;
    let service = Arc::new(Service::new(name, word, single, options));
    let admission = Arc::new(GateAdmission { service: service.clone(), geometry, types });
    let published = LinkPoller::of_process().publish(&number, name, &options.allowed, admission)?;
    *kumihimo_runtime::lock(&service.published) = Some(published);
    let resource_entry = Some(resource_entry::gate(name, service.clone()));
    metrics::install();
    Ok(Serving { service, resource_entry })
}

/// Admits clients to a gate.
struct GateAdmission {
    pub(super) service: Arc<Service>,
    geometry: Geometry,
    types: Option<u64>,
}

impl Admission for GateAdmission {
    fn admits(&self, peer: Peer, hello: &Hello) -> Result<Admitted, Error> {
        self.service.check_room(peer)?;
        if hello.types.is_some() != self.types.is_some() {
            let (has, wants) =
                if self.types.is_some() { ("typed", "bytes") } else { ("bytes", "typed") };
            let text = format!(
                "gate {:?} takes {has} requests, and the caller makes {wants} ones: call it as it is served",
                self.service.name
            );
            return Err(Error::new(ErrorKind::Version, text));
        }
        if let (Some(own), Some(theirs)) = (self.types, hello.types)
            && !type_hash::agree(own, theirs)
        {
            let text = format!(
                "gate {:?} serves other types than the caller calls it with: name them, as in Gate::<(u32, u32), u32>::connect (a literal is an i32)",
                self.service.name
            );
            return Err(Error::new(ErrorKind::Version, text));
        }
        let account = LinkAccount::open(self.service.quotas, peer.uid, self.geometry.bytes())
            .map_err(|e| e.of_gate(&self.service.name))?;
        let (host, lane) = ServerEnd::create("kumihimo-lane", self.geometry)?;
        let bit = link_index::next_bit();
        // Another user does not decide that this process spins.
        let spins = hello.placement == Placement::Spin;
        let placement = match hello.placement {
            _ if spins && !quota::is_own(peer.uid) => Placement::Adaptive,
            placement => placement,
        };
        let notifier = Notifier::new(wake_address::peer(hello.wake_address), bit, placement);
        let server_link = ServerLink::new(
            self.service.clone(),
            host,
            notifier,
            peer,
            hello.origin.as_deref(),
            account,
        );
        let size = LaneSize { cells: self.geometry.cells(), inline: self.geometry.inline() };
        Ok(Admitted {
            size,
            wake_address: wake_address::own(bit),
            lane,
            opened: Box::new(move |link| {
                server_link.begin(link, bit);
                server_link
            }),
        })
    }
}
