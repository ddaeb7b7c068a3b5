//! The impls that all four types share. Macros because the types are distinct, as in std, and Rust has no other way to write them once.

/// Descriptor traits, conversion from and to std's type, and Debug as std prints it.
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

/// Conversions of a stream, `Read` and `Write` for it and for references to it, timeouts and what else both stream types have.
macro_rules! stream_traits {
    ($ours:ident, $theirs:ty, $kind:expr) => {
        descriptor_traits!($ours, $theirs);

        impl From<$theirs> for $ours {
            /// Takes over the timeouts and the nonblocking mode that the stream has.
            fn from(stream: $theirs) -> Self {
                let options = Options::default();
                options.set_nonblocking(is_nonblocking(stream.as_fd()));
                options.set_timeout(Interest::Read, stream.read_timeout().unwrap_or(None));
                options.set_timeout(Interest::Write, stream.write_timeout().unwrap_or(None));
                $ours(Socket::new(stream, Arc::new(options)))
            }
        }

        impl From<$ours> for $theirs {
            fn from(stream: $ours) -> Self {
                stream.0.inner
            }
        }

        impl io::Read for &$ours {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.recv($kind, buf)
            }
            fn read_vectored(&mut self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.recv_vectored($kind, bufs)
            }
        }

        impl io::Read for $ours {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.recv($kind, buf)
            }
            fn read_vectored(&mut self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.recv_vectored($kind, bufs)
            }
        }

        impl io::Write for &$ours {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.0.send(buf)
            }
            fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
                self.0.send_vectored(bufs)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl io::Write for $ours {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.0.send(buf)
            }
            fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
                self.0.send_vectored(bufs)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl $ours {
            /// A second handle to the same stream; options set through one hold for both. Readers and writers may use both at once.
            ///
            /// # Errors
            /// No descriptor left.
            pub fn try_clone(&self) -> io::Result<$ours> {
                Ok($ours(Socket::new(self.0.inner.try_clone()?, self.0.options.clone())))
            }

            /// Address of this end.
            ///
            /// # Errors
            /// As getsockname(2).
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.inner.local_addr()
            }

            /// Address of the other end.
            ///
            /// # Errors
            /// `NotConnected` if there is none any more.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.inner.peer_addr()
            }

            /// Ends one direction or both, for all handles. A read that waits returns 0, a write that waits fails.
            ///
            /// # Errors
            /// `NotConnected` if the stream is not connected (any more).
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.inner.shutdown(how)
            }

            /// How long a read may wait before it fails with `WouldBlock`; `None`, the default: for ever.
            ///
            /// # Errors
            /// `InvalidInput` if the duration is zero.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                // The kernel's copy is for those who take the descriptor out; our own calls never wait there.
                self.0.inner.set_read_timeout(timeout)?;
                self.0.options.set_timeout(Interest::Read, timeout);
                Ok(())
            }

            /// How long a write may wait before it fails with `WouldBlock`; `None`, the default: for ever.
            ///
            /// # Errors
            /// `InvalidInput` if the duration is zero.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.inner.set_write_timeout(timeout)?;
                self.0.options.set_timeout(Interest::Write, timeout);
                Ok(())
            }

            /// The timeout of reads.
            ///
            /// # Errors
            /// None today; the signature is std's.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.options.get_timeout(Interest::Read))
            }

            /// The timeout of writes.
            ///
            /// # Errors
            /// None today; the signature is std's.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.options.get_timeout(Interest::Write))
            }

            /// Reads without taking: the next read gets the same bytes. Waits for the first byte as a read does.
            ///
            /// # Errors
            /// As `read`.
            pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.peek(buf)
            }

            /// Whether calls that would wait fail with `WouldBlock` instead, for this handle and its clones.
            ///
            /// # Errors
            /// As ioctl(2).
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.0.inner.set_nonblocking(nonblocking)?;
                self.0.options.set_nonblocking(nonblocking);
                Ok(())
            }

            /// Takes the pending error of the socket (SO_ERROR), if there is one.
            ///
            /// # Errors
            /// As getsockopt(2).
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.inner.take_error()
            }
        }
    };
}

/// Conversions of a listener and what both listener types have.
macro_rules! listener_traits {
    ($ours:ident, $theirs:ty, $stream:ident) => {
        descriptor_traits!($ours, $theirs);

        impl From<$theirs> for $ours {
            /// Sets `O_NONBLOCK` on the open file; its former state stays what `accept` obeys.
            fn from(listener: $theirs) -> Self {
                let options = Options::default();
                options.set_nonblocking(is_nonblocking(listener.as_fd()));
                listener.set_nonblocking(true).expect("FIONBIO works on every open socket");
                $ours(Socket::new(listener, Arc::new(options)))
            }
        }

        impl From<$ours> for $theirs {
            /// Gives `O_NONBLOCK` the state that `set_nonblocking` asked for. Clones must not wait in `accept` after that.
            fn from(listener: $ours) -> Self {
                let nonblocking = listener.0.options.nonblocking();
                listener.0.inner.set_nonblocking(nonblocking).expect("FIONBIO works on every open socket");
                listener.0.inner
            }
        }

        impl $ours {
            /// A second handle to the same listener. Several may wait in `accept` at once.
            ///
            /// # Errors
            /// No descriptor left.
            pub fn try_clone(&self) -> io::Result<$ours> {
                Ok($ours(Socket::new(self.0.inner.try_clone()?, self.0.options.clone())))
            }

            /// The address that it listens on.
            ///
            /// # Errors
            /// As getsockname(2).
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.inner.local_addr()
            }

            /// Waits for the next connection. A cancellation point.
            ///
            /// # Errors
            /// No descriptor left (`EMFILE`, `ENFILE`): the connection stays in the backlog, and a later call gets it.
            /// `WouldBlock` after `set_nonblocking(true)`; `TimedOut` when the deadline of a scope has passed.
            pub fn accept(&self) -> io::Result<($stream, SocketAddr)> {
                self.0.attempt(Interest::Read, |_| {
                    let (stream, addr) = self.0.inner.accept()?;
                    // Fresh from the kernel: blocking, no timeouts.
                    let stream = $stream(Socket::new(stream, Arc::default()));
                    Ok(Done { value: (stream, addr), dry: false })
                })
            }

            /// An endless iterator over `accept`.
            pub fn incoming(&self) -> Incoming<'_> {
                Incoming { listener: self }
            }

            /// Whether `accept` fails with `WouldBlock` instead of waiting, for this handle and its clones.
            ///
            /// # Errors
            /// None today; the signature is std's.
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.0.options.set_nonblocking(nonblocking);
                Ok(())
            }

            /// Takes the pending error of the socket (SO_ERROR), if there is one.
            ///
            /// # Errors
            /// As getsockopt(2).
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.inner.take_error()
            }
        }

        /// Connections as they come; made by `incoming`. Never ends.
        #[must_use = "iterators are lazy and do nothing unless consumed"]
        #[derive(Debug)]
        pub struct Incoming<'a> {
            listener: &'a $ours,
        }

        impl Iterator for Incoming<'_> {
            type Item = io::Result<$stream>;
            fn next(&mut self) -> Option<Self::Item> {
                Some(self.listener.accept().map(|(stream, _)| stream))
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                (usize::MAX, None)
            }
        }

        impl std::iter::FusedIterator for Incoming<'_> {}
    };
}
