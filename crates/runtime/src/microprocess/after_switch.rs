//! The action that completes a switch: what happens to a microprocess after its stack was left.

use kumihimo_policy::Why;

/// Pending action for the microprocess that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterSwitch {
    /// No action: no microprocess was left (an idle carrier), or it was queued early.
    Nothing,
    /// Queue it: it is runnable.
    Requeue(Why),
    /// Queue it in front of the others of its level: it is runnable, and its child runs first.
    RequeueFront,
    /// Park it, unless it has a permit.
    Park,
    /// Finish it: it has ended.
    Finish,
    /// Finish it: it has ended, and its joiner, which it has woken, runs next.
    FinishToJoiner,
    /// Suspend it.
    Suspend,
}
