//! A request in a handler's hands: its caller, its payload, its reply.

use std::time::{Duration, Instant};

use kumihimo_runtime::{cancel, remote_wake};

use crate::error::{Error, ErrorKind};
use crate::lane::ReplyHeader;
use crate::region::sealed::Region;
use crate::server::server_link::Request;
use crate::wire::message::{IN_REGION, RequestKind, Status};

/// The caller of a request, and the properties of its call.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{Context, Error, ErrorKind, Gate, Options};
///
/// /// Refuses callers of low priority.
/// fn admit(request: u32, context: &Context<'_>) -> Result<u32, Error> {
///     match context.priority() {
///         40.. => Ok(request),
///         level => Err(Error::new(ErrorKind::NotPermitted, format!("priority {level}"))),
///     }
/// }
///
/// let _serving = Gate::serve_with("urgent", &Options::new(), admit)?;
/// let call = |level| {
///     Gate::<u32, u32>::connect_with("urgent", &Options::new().priority(level))?.call(&1)
/// };
/// assert_eq!(call(50)?, 1);
/// assert_eq!(call(10).unwrap_err().kind(), ErrorKind::NotPermitted);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
pub struct Context<'a> {
    pub(super) request: &'a Request,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("peer", &self.request.link.peer).finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// The user of the calling process, from the kernel.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use std::os::unix::fs::MetadataExt;
    ///
    /// let options = Options::new();
    /// let _serving = Gate::serve_with("uid", &options, |(): (), context| Ok(context.uid()))?;
    /// let uid = Gate::<(), u32>::connect("uid")?.call(&())?;
    /// assert_eq!(uid, std::fs::metadata("/proc/self").unwrap().uid());
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.request.link.peer.uid
    }

    /// The caller on another machine: the name in the certificate of its border. `None` for calls
    /// of this machine.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// let options = Options::new();
    /// let _serving = Gate::serve_with("origin", &options, |(): (), context| {
    ///     Ok(context.origin().map(str::to_owned))
    /// })?;
    /// assert_eq!(Gate::<(), Option<String>>::connect("origin")?.call(&())?, None);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.request.link.origin.as_deref()
    }

    /// The calling process; `None` where it is in a pid namespace that this one cannot see into.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// let options = Options::new();
    /// let _serving = Gate::serve_with("pid", &options, |(): (), context| Ok(context.pid()))?;
    /// let pid = Gate::<(), Option<u32>>::connect("pid")?.call(&())?;
    /// assert_eq!(pid, Some(std::process::id()));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.request.link.peer.pid
    }

    /// The priority of the request, 0 to 63: the caller's, and that of another user at most
    /// [`Quotas::others_priority`](crate::Quotas::others_priority).
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// let _serving =
    ///     Gate::serve_with("level", &Options::new(), |(): (), context| Ok(context.priority()))?;
    /// let level = Gate::<(), u8>::connect_with("level", &Options::new().priority(12))?;
    /// assert_eq!(level.call(&())?, 12);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.request.header.priority
    }

    /// Until when the caller waits.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use std::time::Duration;
    ///
    /// let _serving = Gate::serve_with("limited", &Options::new(), |(): (), context| {
    ///     Ok(context.deadline().is_some())
    /// })?;
    /// let limited = Gate::<(), bool>::connect("limited")?;
    /// assert!(!limited.call(&())?);
    /// assert!(limited.call_within(&(), Duration::from_secs(60))?);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.request.header.deadline != 0).then(|| from_monotonic(self.request.header.deadline))
    }

    /// Whether the caller has ended or abandoned the request. A handler of a pool is cancelled
    /// then, too. A loop is not cancelled; this reports on the request that it received last.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::thread;
    ///
    /// let mut server = Gate::<(), ()>::listen("slow")?;
    /// let client = thread::spawn(|| Gate::<(), ()>::connect("slow")?.call(&()));
    /// let item = server.receive()?;
    /// client.cancel();
    /// // A loop would look at this between two parts of its work.
    /// while !item.context().is_cancelled() {
    ///     thread::yield_now();
    /// }
    /// assert!(client.join().is_err(), "it was cancelled");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let Request { link, cell, .. } = self.request;
        link.is_gone()
            || cancel::requested()
            || link.service.single && link.service.is_abandoned(link, *cell)
    }

    /// The regions that were passed with the request, in order. Blocks the microprocess until they
    /// have come.
    ///
    /// # Errors
    /// `Malformed`: the caller has not passed a region, and its link is cut. `Gone`: the caller has
    /// ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options, Region};
    ///
    /// let _serving = Gate::serve_with("sum", &Options::new(), |(): (), context| {
    ///     Ok(context.regions()?.iter().map(|region| region.len()).sum::<usize>())
    /// })?;
    ///
    /// let regions = [Region::copy_of(b"four")?, Region::copy_of(b"seven")?];
    /// let (sum, _) = Gate::<(), usize>::connect("sum")?.call_with(&(), &regions)?;
    /// assert_eq!(sum, 9);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    pub fn regions(&self) -> Result<Vec<Region>, Error> {
        let skipped = usize::from(self.request.header.flags & IN_REGION != 0);
        let numbers =
            self.request.header.regions[skipped..].iter().take_while(|number| **number != 0);
        numbers.map(|number| self.request.link.region(*number)).collect()
    }
}

/// An absolute time of CLOCK_MONOTONIC as an `Instant`.
pub(crate) fn from_monotonic(deadline: u64) -> Instant {
    Instant::now() + Duration::from_nanos(deadline.saturating_sub(remote_wake::monotonic()))
}

/// The outcome of a handler: its regions; the payload is in the buffer that it was passed.
pub(crate) type Outcome = Result<Vec<Region>, Error>;
/// A handler, without its types.
pub(crate) type Handler = dyn Fn(&[u8], &Job<'_>, &mut Vec<u8>) -> Outcome + Send + Sync;

/// A request in a handler's hands.
pub(crate) struct Job<'a> {
    pub(crate) request: &'a Request,
    pub(crate) context: Context<'a>,
}

/// Copies the payload of a request out of its cell. Returns the region that holds it if it is too
/// large for that.
pub(crate) fn read_request(
    request: &Request,
    payload: &mut Vec<u8>,
) -> Result<Option<Region>, Error> {
    let Request { link, header, .. } = request;
    if header.deadline != 0 && header.deadline <= remote_wake::monotonic() {
        return Err(Error::new(
            ErrorKind::TimedOut,
            "the deadline had passed before the request was handled",
        ));
    }
    link.read_payload(request, payload)?;
    link.service.check_size("a request", payload.len())?;
    if header.flags & IN_REGION == 0 {
        return Ok(None);
    }
    let whole = link.region(header.regions[0])?;
    link.service.check_size("a request", whole.len())?;
    Ok(Some(whole))
}

/// Sends the reply, or the error of the handler.
pub(crate) fn send_reply(request: &Request, outcome: Outcome, reply: &[u8]) {
    let Request { link, cell, header, .. } = request;
    let status = if header.kind == RequestKind::Stream as u8 { Status::End } else { Status::Done };
    let in_time = header.deadline == 0 || remote_wake::monotonic() < header.deadline;
    let sent = outcome.and_then(|regions| {
        // What the handler waited for may have ended at the deadline, whatever it makes of that.
        if !in_time {
            return Err(Error::new(ErrorKind::TimedOut, "the handler ended after the deadline"));
        }
        link.service.check_size("a reply", reply.len())?;
        if reply.len() <= link.inline() {
            let regions =
                if regions.is_empty() { Default::default() } else { link.pass_regions(&regions)? };
            return link.reply(
                *cell,
                &ReplyHeader { status: status.number(), regions, ..ReplyHeader::default() },
                reply,
            );
        }
        let whole: Vec<Region> = std::iter::once(Region::copy_of(reply)?).chain(regions).collect();
        let regions = link.pass_regions(&whole)?;
        link.reply(
            *cell,
            &ReplyHeader { status: Status::InRegion.number(), regions, ..ReplyHeader::default() },
            &[],
        )
    });
    if let Err(error) = sent {
        link.reply_error(*cell, &error);
    }
}
