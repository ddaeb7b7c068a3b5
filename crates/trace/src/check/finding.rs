//! What the checker found, each with its place in the trace.

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// An inversion beyond the bound.
    Inversion,
    /// The longest inversion of its kind in the run, within the bound.
    ShortInversion,
    /// States of a microprocess that contradict each other.
    Contradiction,
    /// The watchdog has overridden a VP whose thread was stuck in the scheduler.
    Stall,
    /// Records were lost before this moment.
    Lost,
}

/// Something that the checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Track of the run.
    pub run: u64,
    /// Track of the VP or microprocess concerned, or that of the run.
    pub track: u64,
    /// Start, in nanoseconds since the start of the run.
    pub from: u64,
    /// End; equal to the start for a moment.
    pub to: u64,
    /// The kind.
    pub kind: FindingKind,
    /// Description, which can contain names of microprocesses.
    pub text: String,
}

/// Number of findings of a run that are kept.
const MOST: usize = 1000;

/// The first findings of a run.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a finding, if there is room. Returns its position.
    pub(crate) fn add(&mut self, finding: Finding) -> Option<usize> {
        let at = self.0.len();
        (at < MOST).then(|| {
            self.0.push(finding);
            at
        })
    }

    /// Returns the finding at a position that [`add`](Findings::add) returned.
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Finding {
        &mut self.0[at]
    }

    /// Returns all of them, and `more`, in the order of their starts.
    pub(crate) fn sorted(self, more: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
        let mut all = self.0;
        all.extend(more);
        all.sort_by_key(|finding| finding.from);
        all
    }
}
