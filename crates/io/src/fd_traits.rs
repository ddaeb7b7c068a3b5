//! Trait implementations that every type with a descriptor shares.
//!
//! They are macros because the types are distinct, as in std, and the traits are foreign: a blanket
//! implementation would violate coherence. They generate trait implementations only; every public
//! method is written out at its type.

/// Implements the descriptor traits, the conversions from and to `OwnedFd`, and std's `Debug`.
macro_rules! descriptor_traits {
    ($ours:ident, $theirs:ty) => {
        impl std::fmt::Debug for $ours {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.inner.fmt(f)
            }
        }

        impl std::os::fd::AsFd for $ours {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.inner.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $ours {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.fd()
            }
        }

        impl std::os::fd::IntoRawFd for $ours {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                <$theirs>::from(self).into_raw_fd()
            }
        }

        impl std::os::fd::FromRawFd for $ours {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> Self {
                // SAFETY: the caller's promise is the same: `fd` is open and ours.
                Self::from(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
            }
        }

        impl From<std::os::fd::OwnedFd> for $ours {
            fn from(fd: std::os::fd::OwnedFd) -> Self {
                Self::from(<$theirs>::from(fd))
            }
        }

        impl From<$ours> for std::os::fd::OwnedFd {
            fn from(socket: $ours) -> Self {
                <$theirs>::from(socket).into()
            }
        }
    };
}

/// Implements `Read` for a type around a [`Descriptor`](crate::descriptor::Descriptor), and for
/// references to it.
macro_rules! reads {
    ($ours:ident) => {
        reads!(for &$ours);
        reads!(for $ours);
    };
    (for $type:ty) => {
        impl std::io::Read for $type {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buf)
            }
            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.read_vectored(bufs)
            }
        }
    };
}

/// Implements `Write` for a type around a [`Descriptor`](crate::descriptor::Descriptor), and for
/// references to it.
macro_rules! writes {
    ($ours:ident) => {
        writes!(for &$ours);
        writes!(for $ours);
    };
    (for $type:ty) => {
        impl std::io::Write for $type {
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                self.0.write(buf)
            }
            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.0.write_vectored(bufs)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

/// Implements the conversions of a pipe end: from and to std's type, and to `Stdio`.
macro_rules! pipe_end {
    ($ours:ident, $theirs:ty) => {
        crate::fd_traits::descriptor_traits!($ours, $theirs);

        impl From<$theirs> for $ours {
            fn from(end: $theirs) -> $ours {
                $ours(crate::descriptor::Descriptor::with_class(
                    end,
                    crate::descriptor::FileClass::Polled,
                ))
            }
        }

        impl From<$ours> for $theirs {
            fn from(end: $ours) -> $theirs {
                end.0.inner
            }
        }

        impl From<$ours> for std::process::Stdio {
            fn from(end: $ours) -> std::process::Stdio {
                end.0.inner.into()
            }
        }
    };
}

pub(crate) use {descriptor_traits, pipe_end, reads, writes};
