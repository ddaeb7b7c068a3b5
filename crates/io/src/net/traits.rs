//! The impls that all six types share. Macros because the types are distinct, as in std, and Rust
//! has no other way to write them once.

/// Descriptor traits, conversion from and to std's type, and Debug as std prints it.
macro_rules! descriptor_traits {
    ($ours:ident, $theirs:ty) => {
        impl std::fmt::Debug for $ours {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.inner.fmt(f)
            }
        }

        impl $ours {
            /// Its id in the resource table, of kind `socket` or `file`. None where the table was
            /// full when it was made.
            #[must_use]
            pub fn resource(&self) -> Option<kumihimo_resource::id::Id> {
                self.0.resource()
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

/// The timeouts of everything that reads and writes.
macro_rules! timeouts {
    ($ours:ident) => {
        impl $ours {
            /// How long a read may wait before it fails with `WouldBlock`; `None`, the default: for
            /// ever.
            ///
            /// # Errors
            /// `InvalidInput` if the duration is zero.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                // The kernel's copy is for code that takes the descriptor out; our own calls never
                // wait there.
                self.0.inner.set_read_timeout(timeout)?;
                self.0.options.set_timeout(Interest::Read, timeout);
                Ok(())
            }

            /// How long a write may wait before it fails with `WouldBlock`; `None`, the default:
            /// for ever.
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
        }
    };
}

/// Conversions of a stream, `Read` and `Write` for it and for references to it, timeouts and what
/// else both stream types have.
macro_rules! stream_traits {
    ($ours:ident, $theirs:ty, $family:expr) => {
        descriptor_traits!($ours, $theirs);
        timeouts!($ours);

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
                self.0.recv($family, buf)
            }
            fn read_vectored(&mut self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.recv_vectored($family, bufs)
            }
        }

        impl io::Read for $ours {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.recv($family, buf)
            }
            fn read_vectored(&mut self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.recv_vectored($family, bufs)
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
            /// A second handle to the same stream; options set through one hold for both. Readers
            /// and writers may use both at once.
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

            /// Ends one direction or both, for all handles. A read that waits returns 0, a write
            /// that waits fails.
            ///
            /// # Errors
            /// `NotConnected` if the stream is not connected (any more).
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.inner.shutdown(how)
            }

            /// Reads without taking: the next read gets the same bytes. Waits for the first byte as
            /// a read does.
            ///
            /// # Errors
            /// As `read`.
            pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.peek(buf)
            }

            /// Whether calls that would wait fail with `WouldBlock` instead, for this handle and
            /// its clones.
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
            /// Gives `O_NONBLOCK` the state that `set_nonblocking` asked for. Clones must not wait
            /// in `accept` after that.
            fn from(listener: $ours) -> Self {
                let nonblocking = listener.0.options.nonblocking();
                listener
                    .0
                    .inner
                    .set_nonblocking(nonblocking)
                    .expect("FIONBIO works on every open socket");
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
            /// No descriptor left (`EMFILE`, `ENFILE`): the connection stays in the backlog, and a
            /// later call gets it. `WouldBlock` after `set_nonblocking(true)`; `TimedOut` when the
            /// deadline of a scope has passed.
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

            /// Whether `accept` fails with `WouldBlock` instead of waiting, for this handle and its
            /// clones.
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

/// Conversions of a datagram socket, and what both types have. `O_NONBLOCK` is kept set on the open
/// file, as for listeners: std's own calls, which then never wait, do the rest. `$nobody`: the
/// sender of nothing.
macro_rules! datagram_traits {
    ($ours:ident, $theirs:ty, $nobody:expr) => {
        descriptor_traits!($ours, $theirs);
        timeouts!($ours);

        impl From<$theirs> for $ours {
            /// Takes over the timeouts and the nonblocking mode that the socket has. Sets
            /// `O_NONBLOCK` on the open file.
            fn from(socket: $theirs) -> Self {
                let options = Options::default();
                options.set_nonblocking(is_nonblocking(socket.as_fd()));
                options.set_timeout(Interest::Read, socket.read_timeout().unwrap_or(None));
                options.set_timeout(Interest::Write, socket.write_timeout().unwrap_or(None));
                socket.set_nonblocking(true).expect("FIONBIO works on every open socket");
                $ours(Socket::new(socket, Arc::new(options)))
            }
        }

        impl From<$ours> for $theirs {
            /// Gives `O_NONBLOCK` the state that `set_nonblocking` asked for. Clones must not wait
            /// after that.
            fn from(socket: $ours) -> Self {
                let nonblocking = socket.0.options.nonblocking();
                socket
                    .0
                    .inner
                    .set_nonblocking(nonblocking)
                    .expect("FIONBIO works on every open socket");
                socket.0.inner
            }
        }

        impl $ours {
            /// A second handle to the same socket; options set through one hold for both. Several
            /// may wait at once: each datagram goes to one of them.
            ///
            /// # Errors
            /// No descriptor left.
            pub fn try_clone(&self) -> io::Result<$ours> {
                Ok($ours(Socket::new(self.0.inner.try_clone()?, self.0.options.clone())))
            }

            /// The address that it is bound to.
            ///
            /// # Errors
            /// As getsockname(2).
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.0.inner.local_addr()
            }

            /// The address that it is connected to.
            ///
            /// # Errors
            /// `NotConnected` if it is not.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.0.inner.peer_addr()
            }

            /// Waits for a datagram; returns its length and where it comes from. What `buf` has no
            /// room for is lost. A cancellation point.
            ///
            /// # Errors
            /// `WouldBlock` after the read timeout; `TimedOut` when the deadline of a scope has
            /// passed; else as recvfrom(2).
            pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
                self.receive((0, $nobody), || self.0.inner.recv_from(buf))
            }

            /// Waits for a datagram; returns its length. What `buf` has no room for is lost. A
            /// cancellation point.
            ///
            /// # Errors
            /// As [`recv_from`](Self::recv_from); an error that the peer of a connected socket has
            /// sent back (`ConnectionRefused`).
            pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.receive(0, || self.0.inner.recv(buf))
            }

            /// Sends a datagram to the connected peer, waiting for room. A cancellation point.
            ///
            /// # Errors
            /// `WouldBlock` after the write timeout; `TimedOut` when the deadline of a scope has
            /// passed; else as send(2): `EMSGSIZE` if it is too long for one datagram,
            /// `NotConnected` or `EDESTADDRREQ` without a peer. Never a signal.
            pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
                self.send_one(buf)
            }

            fn receive<T: Clone>(
                &self,
                nothing: T,
                mut f: impl FnMut() -> io::Result<T>,
            ) -> io::Result<T> {
                self.0.attempt(Interest::Read, |fd| {
                    let value = match f() {
                        // A call that waits would return 0 now; one that does not wait is told
                        // nothing of it.
                        Err(e)
                            if e.kind() == io::ErrorKind::WouldBlock
                                && !self.0.options.nonblocking()
                                && is_shut_down(fd) =>
                        {
                            nothing.clone()
                        }
                        other => other?,
                    };
                    // A datagram that was short says nothing of the next one.
                    Ok(Done { value, dry: false })
                })
            }

            /// Whether calls that would wait fail with `WouldBlock` instead, for this handle and
            /// its clones.
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
    };
}
