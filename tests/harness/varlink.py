"""A varlink client that can also misbehave: raw bytes, descriptors, half messages, slow reading."""
import array
import contextlib
import json
import select
import socket
import time


class VarlinkError(Exception):
    """An error reply: name and parameters."""

    def __init__(self, name, parameters):
        super().__init__(f"{name} {parameters}")
        self.name, self.parameters = name, parameters


class Closed(Exception):
    """The peer closed the connection."""


class Connection:
    def __init__(self, path, timeout=20.0):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.socket.settimeout(timeout)
        self.timeout = timeout
        self.socket.connect(str(path))
        self._buffer = b""

    # --- raw

    def send_bytes(self, data, fds=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.socket.sendmsg([data], ancillary)
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def send(self, method, parameters=None, fds=(), **flags):
        message = {"method": method, **flags}
        if parameters is not None:
            message["parameters"] = parameters
        self.send_bytes(json.dumps(message).encode() + b"\0", fds)

    def receive_frame(self, timeout=None):
        """The next message's bytes without the NUL; Closed where the connection ends."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self.socket], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no reply within {timeout or self.timeout} s; so far {self._buffer[:200]!r}")
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Closed(f"connection closed; unfinished: {self._buffer[:200]!r}")
            self._buffer += data
        frame, _, self._buffer = self._buffer.partition(b"\0")
        return frame

    def receive(self, timeout=None):
        """The next reply as a dictionary: parameters, and error or continues where there are."""
        return json.loads(self.receive_frame(timeout))

    def is_closed(self, timeout=10):
        """Whether the peer closes within the timeout. Unread replies are thrown away."""
        try:
            while True:
                self.receive_frame(timeout)
        except Closed:
            return True
        except TimeoutError:
            return False

    # --- calls

    def call(self, method, parameters=None, fds=(), timeout=None):
        """One call, one reply: its parameters. method without a dot means io.iloader.Manager's."""
        self.send(method if "." in method else f"io.iloader.Manager.{method}", parameters or {}, fds)
        reply = self.receive(timeout)
        if "error" in reply:
            raise VarlinkError(reply["error"].removeprefix("io.iloader.Manager."), reply.get("parameters", {}))
        return reply["parameters"]

    def stream(self, method, parameters=None, fds=(), timeout=None):
        """A call with "more": yields each reply's parameters."""
        self.send(method if "." in method else f"io.iloader.Manager.{method}", parameters or {}, fds, more=True)
        while True:
            reply = self.receive(timeout)
            if "error" in reply:
                raise VarlinkError(reply["error"].removeprefix("io.iloader.Manager."), reply.get("parameters", {}))
            yield reply["parameters"]
            if not reply.get("continues"):
                return

    def error(self, method, parameters=None, fds=()):
        """A call that must fail: the error's name, without the interface where it is ours, and its parameters."""
        try:
            reply = self.call(method, parameters, fds)
        except VarlinkError as e:
            return e.name, e.parameters
        raise AssertionError(f"{method} {parameters} succeeded: {reply}")

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def connected(path, timeout=20.0):
    with Connection(path, timeout) as c:
        yield c
