//! Time: [`sleep`], the CPU clocks of threads ([`clock`]), and the [`deadline`] of a wait.

pub(crate) mod clock;
pub(crate) mod deadline;
pub(crate) mod sleep;
