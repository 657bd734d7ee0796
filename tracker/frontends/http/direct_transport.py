"""A connection whose only request is read when it is accepted: one send answers it, and it is closed.

Most clients open a connection for each announce and ask to close it. A transport of the event loop costs such a
connection more than reading and answering its request, because the loop registers the socket, starts to read and stops
again. This transport never reads: the accept queue has read the request (accept_queue.py). A request that the fast
protocol does not answer goes with its connection to a transport of the loop. A client that sends more after such a
request may lose its answer, as the system resets the connection; none does after it has asked to close it.
"""

import asyncio
from collections.abc import Callable
from socket import MSG_DONTWAIT, SocketType
from typing import Any

PassOn = Callable[[SocketType, bytes], None]


class DirectTransport(asyncio.Transport):
    """``pass_on`` takes the socket of a connection that needs a transport of the loop, and ``received``."""

    __slots__ = ("_closing", "_pass_on", "_peername", "_protocol", "_received", "_socket", "_unsent")

    _protocol: asyncio.Protocol

    def __init__(self, sock: SocketType, peername: Any, received: bytes, pass_on: PassOn) -> None:
        self._socket = sock
        self._peername = peername
        self._received = received
        self._pass_on = pass_on
        self._unsent = b""
        self._closing = False

    def begin(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peername
        return self._socket if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Reports bytes that cannot be sent immediately."""

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def pause_reading(self) -> None:
        """Nothing is read."""

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        """Sends an answer, usually at once: it is shorter than the system's send buffer."""
        try:
            sent = self._socket.send(data, MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:  # the client is gone
            self.abort()
            return
        if sent < len(data):
            self._unsent = data[sent:]
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._send_rest)
            self._protocol.pause_writing()

    def _send_rest(self) -> None:
        try:
            sent = self._socket.send(self._unsent, MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self.abort()
            return
        if sent < len(self._unsent):
            self._unsent = self._unsent[sent:]
        else:
            self.abort()

    def close(self) -> None:
        """Closes the connection when the answer is sent."""
        self._closing = True
        if not self._unsent:
            self.abort()

    def abort(self) -> None:
        sock = self._socket
        if sock.fileno() < 0:
            return
        self._closing = True
        if self._unsent:
            asyncio.get_running_loop().remove_writer(sock.fileno())
        sock.close()
        self._protocol.connection_lost(None)

    def pass_on(self) -> None:
        """Ends this transport; the socket gets a transport of the loop and a new protocol."""
        if not self._closing:  # no answer has been sent yet
            self._closing = True
            self._protocol.connection_lost(None)
            self._pass_on(self._socket, self._received)
