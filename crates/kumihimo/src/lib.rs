//! Kumihimo: kumihimo.
