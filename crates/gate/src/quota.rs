//! Quotas: what one client of a gate, and all clients of one user, may hold of the server.
//!
//! A region that a client passes takes a descriptor and a mapping of the server for as long as the
//! server has it, and keeps its memory alive. A link takes a descriptor and the memory of its lane.
//! Both are charged to the link and to the user of the client's process. The charge of a region
//! ends when the last clone of the region is dropped, so a handler that keeps one keeps its charge.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kumihimo_policy::Priority;
use kumihimo_runtime::lock;

use crate::error::{Error, ErrorKind};

/// Regions of one link: as many as it has calls under way by default ([`Options::in_flight`]), so
/// that each may carry one. A client keeps 256 for later calls.
///
/// [`Options::in_flight`]: crate::Options::in_flight
pub(crate) const LINK_REGIONS: usize = 1024;
/// Regions of one user: a sixteenth of the mappings that Linux allows a process
/// (`vm.max_map_count`).
pub(crate) const USER_REGIONS: usize = 4096;
/// Bytes of regions of one link: 64 payloads of the default maximum, or four regions of the largest
/// size.
pub(crate) const LINK_BYTES: usize = 4 << 30;
/// Bytes of regions and lanes of one user: four links that use all of theirs.
pub(crate) const USER_BYTES: usize = 16 << 30;
/// Highest priority of requests of other users: that of the server's own work by default, beside
/// which they take turns.
pub(crate) const OTHERS_PRIORITY: u8 = Priority::DEFAULT.get();
/// Clients of all users have at most this part of the process's descriptors, and so have those of
/// the server's own user and of root ...
const DESCRIPTORS_OF_CLIENTS: u64 = 2;
/// ... and those of one other user this, so that two such users leave room for a third.
const DESCRIPTORS_OF_OTHER: u64 = 4;

/// What one client, and one user, may hold of a server: [`Options::quotas`]. A client that exceeds
/// a quota of regions or bytes is cut, and its calls fail with `Exhausted`, which names the quota.
/// Requests beyond a quota of handlers wait.
///
/// Beside these, clients of one other user have at most a quarter of the process's descriptors, and
/// those of all users half.
///
/// [`Options::quotas`]: crate::Options::quotas
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{ErrorKind, Gate, Options, Quotas, Region};
///
/// let mut quotas = Quotas::default();
/// quotas.link_bytes = 1 << 20;
/// let options = Options::new().quotas(quotas);
/// let _serving = Gate::serve_with("small", &options, |(): (), context| {
///     Ok(context.regions()?.len())
/// })?;
///
/// let small = Gate::<(), usize>::connect("small")?;
/// assert_eq!(small.call_with(&(), &[Region::copy_of(&[1; 1 << 19])?])?.0, 1);
/// let error = small.call_with(&(), &[Region::copy_of(&[1; 1 << 20])?]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Exhausted);
/// assert!(error.to_string().contains("Quotas::link_bytes"));
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Regions that one client has passed and the server still has. 1,024.
    pub link_regions: usize,
    /// Regions of all clients of one user. 4,096.
    pub user_regions: usize,
    /// Bytes of the regions of one client. 4 GiB.
    pub link_bytes: usize,
    /// Bytes of regions and lanes of all clients of one user. 16 GiB.
    pub user_bytes: usize,
    /// Requests of one client that are handled at once. Three quarters of [`Options::handlers`].
    ///
    /// [`Options::handlers`]: crate::Options::handlers
    pub link_handlers: Option<usize>,
    /// Requests of one user's clients that are handled at once. Half of [`Options::handlers`], and
    /// seven eighths for the server's own user and root.
    ///
    /// [`Options::handlers`]: crate::Options::handlers
    pub user_handlers: Option<usize>,
    /// Highest priority of requests of other users. 32, the default priority.
    pub others_priority: u8,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas {
            link_regions: LINK_REGIONS,
            user_regions: USER_REGIONS,
            link_bytes: LINK_BYTES,
            user_bytes: USER_BYTES,
            link_handlers: None,
            user_handlers: None,
            others_priority: OTHERS_PRIORITY,
        }
    }
}

impl Quotas {
    /// Handlers of one link, and of user `uid`, of a gate with so many. At least one each.
    pub(crate) fn handlers(&self, uid: u32, all: usize) -> (usize, usize) {
        let of_user = if is_own(uid) { all - all / 8 } else { all - all / 2 };
        let link = self.link_handlers.unwrap_or(all - all / 4);
        (link.max(1), self.user_handlers.unwrap_or(of_user).max(1))
    }
}

/// Whether this user is the server's own or root, which may do more to it than call its gates.
pub(crate) fn is_own(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// What the clients of one user hold of this process.
#[derive(Debug, Default)]
pub(crate) struct UserAccount {
    regions: AtomicUsize,
    links: AtomicUsize,
    bytes: AtomicUsize,
}

/// Accounts of the users with clients.
static USERS: Mutex<Option<HashMap<u32, Weak<UserAccount>>>> = Mutex::new(None);
/// Descriptors that clients of all users hold.
static DESCRIPTORS: AtomicU64 = AtomicU64::new(0);

impl UserAccount {
    fn of(uid: u32) -> Arc<UserAccount> {
        let mut users = lock(&USERS);
        let users = users.get_or_insert_default();
        if let Some(account) = users.get(&uid).and_then(Weak::upgrade) {
            return account;
        }
        users.retain(|_, account| account.strong_count() > 0);
        let account = Arc::default();
        users.insert(uid, Arc::downgrade(&account));
        account
    }

    fn descriptors(&self) -> u64 {
        (self.regions.load(Ordering::Relaxed) + self.links.load(Ordering::Relaxed)) as u64
    }
}

/// What one side of a link holds for the other side.
#[derive(Debug)]
pub(crate) struct LinkAccount {
    quotas: Quotas,
    uid: u32,
    /// On the server's side.
    user: Option<Arc<UserAccount>>,
    regions: AtomicUsize,
    bytes: AtomicUsize,
    /// Bytes of the lane.
    lane: usize,
}

impl Default for LinkAccount {
    /// On the client's side, which a server could flood too.
    fn default() -> LinkAccount {
        LinkAccount {
            quotas: Quotas::default(),
            uid: 0,
            user: None,
            regions: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            lane: 0,
        }
    }
}

impl LinkAccount {
    /// Charges user `uid` with a link whose lane has so many bytes.
    ///
    /// # Errors
    /// `Exhausted`, with the quota that the link would exceed.
    pub(crate) fn open(quotas: Quotas, uid: u32, lane: usize) -> Result<LinkAccount, Error> {
        let user = UserAccount::of(uid);
        let mut account = LinkAccount::default();
        (account.quotas, account.uid, account.lane) = (quotas, uid, lane);
        account.check_user(&user, lane)?;
        user.links.fetch_add(1, Ordering::Relaxed);
        user.bytes.fetch_add(lane, Ordering::Relaxed);
        DESCRIPTORS.fetch_add(1, Ordering::Relaxed);
        account.user = Some(user);
        Ok(account)
    }

    /// Charges a region of `bytes` bytes. Called by the link poller alone, so that nothing is
    /// charged between a check and its charge.
    ///
    /// # Errors
    /// `Exhausted`, with the quota that the region exceeds.
    pub(crate) fn charge(self: &Arc<LinkAccount>, bytes: usize) -> Result<Charge, Error> {
        let quotas = &self.quotas;
        if self.regions.load(Ordering::Relaxed) >= quotas.link_regions {
            return Err(exceeded(
                &format!("the client has passed more than {} regions", quotas.link_regions),
                "Quotas::link_regions",
            ));
        }
        if self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > quotas.link_bytes {
            return Err(exceeded(
                &format!("the client's regions have more than {} bytes", quotas.link_bytes),
                "Quotas::link_bytes",
            ));
        }
        if let Some(user) = &self.user {
            if user.regions.load(Ordering::Relaxed) >= quotas.user_regions {
                return Err(exceeded(
                    &format!(
                        "clients of user {} have passed more than {} regions",
                        self.uid, quotas.user_regions
                    ),
                    "Quotas::user_regions",
                ));
            }
            self.check_user(user, bytes)?;
            user.regions.fetch_add(1, Ordering::Relaxed);
            user.bytes.fetch_add(bytes, Ordering::Relaxed);
            DESCRIPTORS.fetch_add(1, Ordering::Relaxed);
        }
        self.regions.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Charge { account: self.clone(), bytes })
    }

    /// Whether the user may have one more descriptor, and `bytes` more.
    fn check_user(&self, user: &UserAccount, bytes: usize) -> Result<(), Error> {
        let quotas = &self.quotas;
        if user.bytes.load(Ordering::Relaxed).saturating_add(bytes) > quotas.user_bytes {
            return Err(exceeded(
                &format!(
                    "lanes and regions of user {} have more than {} bytes",
                    self.uid, quotas.user_bytes
                ),
                "Quotas::user_bytes",
            ));
        }
        let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current
        else {
            return Ok(());
        };
        if DESCRIPTORS.load(Ordering::Relaxed) >= most / DESCRIPTORS_OF_CLIENTS {
            let text =
                "clients of this process have half of its descriptors: raise the limit (ulimit -n)";
            return Err(Error::new(ErrorKind::Exhausted, text));
        }
        if !is_own(self.uid) && user.descriptors() >= most / DESCRIPTORS_OF_OTHER {
            let text = format!(
                "clients of user {} have a quarter of the server's descriptors, which is the most of another user: raise the limit (ulimit -n)",
                self.uid
            );
            return Err(Error::new(ErrorKind::Exhausted, text));
        }
        Ok(())
    }
}

impl Drop for LinkAccount {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            user.links.fetch_sub(1, Ordering::Relaxed);
            user.bytes.fetch_sub(self.lane, Ordering::Relaxed);
            DESCRIPTORS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a region takes of its link's quotas, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<LinkAccount>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.regions.fetch_sub(1, Ordering::Relaxed);
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(user) = &self.account.user {
            user.regions.fetch_sub(1, Ordering::Relaxed);
            user.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            DESCRIPTORS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cold]
fn exceeded(what: &str, quota: &str) -> Error {
    let text = format!("{what}, which is the most: drop some, or have the server raise {quota}");
    Error::new(ErrorKind::Exhausted, text)
}
