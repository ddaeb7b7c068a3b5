//! How a gate is served, and how it is called.

use std::path::PathBuf;
use std::time::Duration;

use crate::quota::Quotas;

mod placement;

pub use placement::Placement;

/// Stands for every user; no user has this number.
pub(crate) const EVERY_USER: u32 = u32::MAX;

/// How a gate is served or called. Start from [`Options::new`], change what differs.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{ErrorKind, Gate, Options};
///
/// // One set of options may serve both sides.
/// let options = Options::new().largest(1 << 10).in_flight(64).priority(40);
/// let _serving = Gate::serve_with("echo", &options, |text: String, _context| Ok(text))?;
/// let echo = Gate::<String, String>::connect_with("echo", &options)?;
/// assert_eq!(echo.call(&"hello".to_owned())?, "hello");
/// assert_eq!(echo.call(&"x".repeat(1 << 11)).unwrap_err().kind(), ErrorKind::TooLarge);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) in_flight: u32,
    pub(crate) inline: u32,
    pub(crate) most: usize,
    pub(crate) handlers: usize,
    pub(crate) allowed: Vec<u32>,
    pub(crate) placement: Placement,
    pub(crate) priority: Option<u8>,
    pub(crate) inherit: bool,
    pub(crate) patience: Duration,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) origin: Option<String>,
    pub(crate) quotas: Quotas,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// The defaults: 1,024 calls under way a client, 4,096 bytes inline, 64 MiB at most, 10,000
    /// handlers at once, the own user only, adaptive.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// let _serving = Gate::serve_with("not", &Options::new(), |is: bool, _context| Ok(!is))?;
    /// assert!(Gate::<bool, bool>::connect("not")?.call(&false)?);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Options {
        Options {
            in_flight: 1024,
            inline: 4096,
            most: 64 << 20,
            handlers: 10_000,
            allowed: Vec::new(),
            placement: Placement::Adaptive,
            priority: None,
            inherit: true,
            patience: Duration::from_secs(5),
            directory: None,
            origin: None,
            quotas: Quotas::default(),
        }
    }

    /// Server: calls of one client that are under way at once; a client's further callers wait. 2
    /// to 32,768, rounded up to a power of two.
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
    /// let _server = Gate::<u32, u32>::listen_with("busy", &Options::new().in_flight(2))?;
    /// let busy = Gate::<u32, u32>::connect("busy")?;
    /// busy.send(&1)?;
    /// busy.send(&2)?;
    /// // The server has taken neither, so a third request waits for room.
    /// let error = busy.call_within(&3, Duration::from_millis(5)).unwrap_err();
    /// assert!(error.to_string().contains("all 2 calls of this client were under way"));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn in_flight(mut self, calls: u32) -> Options {
        self.in_flight = calls;
        self
    }

    /// Server: bytes of a request or reply that lie in the lane itself, 64 to 65,536, rounded up;
    /// what is larger goes through a region of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// // Texts of up to 1 KiB lie in the lane, longer ones in a region each.
    /// let options = Options::new().inline(1 << 10);
    /// let _serving = Gate::serve_with("length", &options, |text: String, _| Ok(text.len()))?;
    /// let length = Gate::<String, usize>::connect("length")?;
    /// for size in [10, 10_000] {
    ///     assert_eq!(length.call(&"x".repeat(size))?, size);
    /// }
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn inline(mut self, bytes: u32) -> Options {
        self.inline = bytes;
        self
    }

    /// The largest request or reply that is sent or taken, in bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{ErrorKind, Gate, Options};
    ///
    /// let _serving = Gate::serve("repeat", |n: usize| "x".repeat(n))?;
    /// let options = Options::new().largest(100_000);
    /// let repeat = Gate::<usize, String>::connect_with("repeat", &options)?;
    /// assert_eq!(repeat.call(&50_000)?.len(), 50_000);
    /// assert_eq!(repeat.call(&200_000).unwrap_err().kind(), ErrorKind::TooLarge);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn largest(mut self, bytes: usize) -> Options {
        self.most = bytes;
        self
    }

    /// Server: requests that are handled at once, each by a microprocess; further ones wait in
    /// their lanes.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use kumihimo::thread;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static AT_ONCE: AtomicU32 = AtomicU32::new(0);
    ///
    /// let _serving = Gate::serve_with("one", &Options::new().handlers(1), |(): (), _context| {
    ///     assert_eq!(AT_ONCE.fetch_add(1, Ordering::SeqCst), 0);
    ///     thread::yield_now();
    ///     AT_ONCE.fetch_sub(1, Ordering::SeqCst);
    ///     Ok(())
    /// })?;
    /// let one = &Gate::<(), ()>::connect("one")?;
    /// thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(|| one.call(&()).unwrap()))));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn handlers(mut self, most: usize) -> Options {
        self.handlers = most;
        self
    }

    /// Server: lets user `uid` call too, beside the own user and root.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// // User 33 may call, beside the own user and root.
    /// let _serving =
    ///     Gate::serve_with("square", &Options::new().allow(33), |n: u32, _context| Ok(n * n))?;
    /// assert_eq!(Gate::<u32, u32>::connect("square")?.call(&5)?, 25);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn allow(mut self, uid: u32) -> Options {
        self.allowed.push(uid);
        self
    }

    /// Server: lets every user call.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    ///
    /// let options = Options::new().allow_everybody();
    /// let _serving = Gate::serve_with("square", &options, |n: u32, _context| Ok(n * n))?;
    /// assert_eq!(Gate::<u32, u32>::connect("square")?.call(&5)?, 25);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn allow_everybody(mut self) -> Options {
        self.allowed.push(EVERY_USER);
        self
    }

    /// Client: where the sides of a call run.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options, Placement};
    ///
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// let options = Options::new().placement(Placement::Handoff);
    /// assert_eq!(Gate::<u32, u32>::connect_with("square", &options)?.call(&5)?, 25);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Options {
        self.placement = placement;
        self
    }

    /// Client: the priority of its calls, 0 to 63, in place of the caller's own.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use kumihimo::thread;
    ///
    /// let _serving = Gate::serve("priority", |(): ()| thread::current().priority().get())?;
    /// let options = Options::new().priority(50);
    /// assert_eq!(Gate::<(), u8>::connect_with("priority", &options)?.call(&())?, 50);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Options {
        self.priority = Some(priority);
        self
    }

    /// Server: whether handlers run at the priority of the caller (the default), or at that of the
    /// microprocess that began to serve.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use kumihimo::thread;
    ///
    /// let own = thread::current().priority().get();
    /// let _serving = Gate::serve_with("fixed", &Options::new().inherit(false), |(): (), context| {
    ///     Ok((context.priority(), thread::current().priority().get()))
    /// })?;
    /// let options = Options::new().priority(50);
    /// let priorities = Gate::<(), (u8, u8)>::connect_with("fixed", &options)?.call(&())?;
    /// assert_eq!(priorities, (50, own));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn inherit(mut self, inherit: bool) -> Options {
        self.inherit = inherit;
        self
    }

    /// Server: what one client and one user may hold: see [`Quotas`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options, Quotas};
    ///
    /// // Requests of other users run below the server's own work.
    /// let mut quotas = Quotas::default();
    /// quotas.others_priority = 20;
    /// let options = Options::new().allow_everybody().quotas(quotas);
    /// let _serving = Gate::serve_with("open", &options, |n: u32, _context| Ok(n + 1))?;
    /// assert_eq!(Gate::<u32, u32>::connect("open")?.call(&5)?, 6);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn quotas(mut self, quotas: Quotas) -> Options {
        self.quotas = quotas;
        self
    }

    /// Client: the run-time directory of the server, where that is another user's. It has to let
    /// the caller in: [`allow`](Options::allow).
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::{Gate, Options};
    /// use kumihimo::machine::Machine;
    ///
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// // Here, the own directory stands for that of another user.
    /// let options = Options::new().directory(Machine::mine()?.path());
    /// assert_eq!(Gate::<u32, u32>::connect_with("square", &options)?.call(&5)?, 25);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Options {
        self.directory = Some(path.into());
        self
    }

    /// Client: the caller on another machine for which this client calls. For the border. Cut to
    /// 255 bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn origin(mut self, origin: &str) -> Options {
        let ends = origin.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= 255).last().unwrap_or(0);
        self.origin = Some(origin[..end].to_owned());
        self
    }

    /// Client: how long to wait for the server's answer while connecting. 5 s.
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
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// let options = Options::new().patience(Duration::from_secs(1));
    /// assert_eq!(Gate::<u32, u32>::connect_with("square", &options)?.call(&5)?, 25);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), kumihimo::gate::Error>(())
    /// ```
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Options {
        self.patience = patience;
        self
    }
}
