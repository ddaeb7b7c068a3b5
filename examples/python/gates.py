"""Gates of Kumihimo from Python, by ctypes: calls between processes at the price of a hand-off.

    with Server("upper", lambda request, caller: request.upper()):   # in one process
        input()
    Gate("upper").call(b"hello", timeout=1.0)                        # in another one, or in Rust: RawGate::connect("upper")

Handlers run on kernel threads (`threads` of them), not on microprocesses: the interpreter needs more stack than those
have, and keeps a state for each thread.
"""
import atexit
import ctypes as c
import os
import sys
import traceback

lib = c.CDLL(os.environ.get("KUMI_LIBRARY", "libkumihimo_c.so.0"))


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("in_flight", c.c_uint32), ("inline_bytes", c.c_uint32), ("largest", c.c_uint64),
                ("handlers", c.c_uint32), ("threads", c.c_uint32), ("placement", c.c_uint32), ("priority", c.c_int32),
                ("flags", c.c_uint32), ("reserved", c.c_uint32), ("patience_ns", c.c_uint64),
                ("allow", c.POINTER(c.c_uint32)), ("allow_count", c.c_size_t)]


class Caller(c.Structure):  # Who calls, and how long it still waits.
    _fields_ = [("size", c.c_size_t), ("uid", c.c_uint32), ("pid", c.c_uint32), ("priority", c.c_uint32),
                ("reserved", c.c_uint32), ("left_ns", c.c_uint64)]


class Bytes(c.Structure):
    _fields_ = [("data", c.c_void_p), ("length", c.c_size_t), ("capacity", c.c_size_t)]


HANDLER = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_size_t, c.c_void_p, c.POINTER(Caller), c.c_void_p)
lib.kumi_error_text.restype = c.c_char_p
lib.kumi_options_init.argtypes = [c.POINTER(Options), c.c_size_t]
lib.kumi_gate_connect.argtypes = [c.POINTER(c.c_void_p), c.c_char_p, c.POINTER(Options)]
lib.kumi_gate_call.argtypes = [c.c_void_p, c.c_char_p, c.c_size_t, c.POINTER(Bytes), c.c_int64]
lib.kumi_gate_send.argtypes = [c.c_void_p, c.c_char_p, c.c_size_t]
lib.kumi_gate_close.argtypes = [c.c_void_p]
lib.kumi_gate_serve.argtypes = [c.POINTER(c.c_void_p), c.c_char_p, c.POINTER(Options), HANDLER, c.c_void_p]
lib.kumi_serving_close.argtypes = [c.c_void_p]
lib.kumi_reply_set.argtypes = [c.c_void_p, c.c_char_p, c.c_size_t]
lib.kumi_reply_fail.argtypes = [c.c_void_p, c.c_int, c.c_char_p]
lib.kumi_bytes_free.restype = lib.kumi_gate_close.restype = None


def checked(number):
    """Raises the OSError of a function that failed: FileNotFoundError, TimeoutError, ConnectionResetError..."""
    if number:
        raise OSError(number, lib.kumi_error_text().decode())


def options(**fields):
    made = Options()
    checked(lib.kumi_options_init(c.byref(made), c.sizeof(made)))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Gate:
    """A caller's hold of a gate. Any thread may call; the interpreter runs the others meanwhile."""
    def __init__(self, name, **fields):
        self.handle = c.c_void_p()
        checked(lib.kumi_gate_connect(c.byref(self.handle), name.encode(), c.byref(options(**fields))))

    def call(self, request, timeout=None):
        reply = Bytes()
        try:
            checked(lib.kumi_gate_call(self.handle, request, len(request), c.byref(reply),
                                       -1 if timeout is None else int(timeout * 1e9)))
            return c.string_at(reply.data, reply.length) if reply.length else b""
        finally:
            lib.kumi_bytes_free(c.byref(reply))

    def send(self, request):
        checked(lib.kumi_gate_send(self.handle, request, len(request)))

    def close(self):
        lib.kumi_gate_close(self.handle)
        self.handle = c.c_void_p()

    __enter__ = lambda self: self
    __exit__ = lambda self, *_: self.close()


class Server:
    """Serves a gate until it is closed: handler(request: bytes, caller: Caller) -> bytes. What it raises, the caller gets as an error."""
    def __init__(self, name, handler, threads=4, **fields):
        def handle(request, length, reply, caller, _):
            try:
                answer = handler(c.string_at(request, length) if length else b"", caller.contents)
                return lib.kumi_reply_set(reply, answer, len(answer))
            except BaseException as error:
                said = "".join(traceback.format_exception_only(type(error), error)).strip()
                return lib.kumi_reply_fail(reply, getattr(error, "errno", None) or 0, said.encode())

        self.handle, self.handler = c.c_void_p(), HANDLER(handle)  # The second is C's to call as long as the first is open.
        made = options(threads=threads, **fields)
        checked(lib.kumi_gate_serve(c.byref(self.handle), name.encode(), c.byref(made), self.handler, None))
        atexit.register(self.close)  # No handler may run when the interpreter has gone.

    def close(self):
        atexit.unregister(self.close)
        checked(lib.kumi_serving_close(self.handle))
        self.handle = c.c_void_p()

    __enter__ = lambda self: self
    __exit__ = lambda self, *_: self.close()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        with Server(sys.argv[2], lambda request, caller: request.upper()):
            print("serving", flush=True)
            sys.stdin.read()
    else:
        print(Gate(sys.argv[2]).call(sys.argv[3].encode(), timeout=30).decode())
