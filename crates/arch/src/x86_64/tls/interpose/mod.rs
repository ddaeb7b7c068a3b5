//! Functions of the C library that are replaced or wrapped, because they would take a block for
//! what it is not: `attr` (pthread attributes), `dlopen`, `fork`, `setxid` (setuid and its like).
//!
//! Each answers for microprocesses and hands everything else on to the C library.

mod attr;
pub(crate) mod dlopen;
pub(crate) mod fork;
pub mod setxid;
