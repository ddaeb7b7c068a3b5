//! Padding against false sharing.

/// Keeps words that different kernel threads write on lines of their own. 128 bytes: x86 prefetches
/// lines in pairs.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
