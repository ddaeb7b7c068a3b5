//! What is to be done with a microprocess once its stack is left.

use kumihimo_policy::Why;

/// What the leaving microprocess wants done with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterSwitch {
    /// Nothing: nobody left (an idle carrier), or it is taken care of.
    Nothing,
    /// It is runnable: back into the queue.
    Requeue(Why),
    /// It is runnable and goes before the others of its level (its child runs first).
    RequeueFront,
    /// It sleeps, unless a permit is there.
    Park,
    /// It has ended.
    Finish,
    /// It has ended, and its joiner, which it has woken, is to run next.
    FinishToJoiner,
    /// It is suspended.
    Suspend,
}
