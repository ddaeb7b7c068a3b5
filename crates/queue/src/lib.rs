//! Kumihimo: queue.
