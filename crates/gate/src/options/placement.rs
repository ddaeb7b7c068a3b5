//! Where the two sides of a call run.

/// Where the two sides of a call run.
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
/// for placement in [Placement::Adaptive, Placement::Handoff, Placement::Scheduled] {
///     let options = Options::new().placement(placement);
///     assert_eq!(Gate::<u32, u32>::connect_with("square", &options)?.call(&3)?, 9);
/// }
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Placement {
    /// By what is found: a side that is awake on another core is waited for with a short spin, one
    /// that sleeps gets the caller's core.
    #[default]
    Adaptive = 0,
    /// The server's microprocess runs on the caller's core, which the caller leaves to it; neither
    /// side spins.
    Handoff = 1,
    /// A wake-up at once, wherever the kernel's scheduler chooses; neither side spins. As between
    /// processes without a common board.
    Scheduled = 2,
    /// Both sides spin, for a millisecond at most. For two cores that have nothing else to do.
    Spin = 3,
}

impl Placement {
    pub(crate) fn from_number(n: u8) -> Option<Placement> {
        [Placement::Adaptive, Placement::Handoff, Placement::Scheduled, Placement::Spin]
            .get(usize::from(n))
            .copied()
    }
}
