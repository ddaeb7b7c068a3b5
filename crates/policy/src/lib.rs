//! Kumihimo: policy.
