"""Listening sockets: TCP over IPv4 and IPv6, and unix sockets.

IPv6 sockets accept IPv6 only, regardless of the system's default. So ``0.0.0.0:6969`` and ``[::]:6969`` can be used
together, and no IPv4 peer appears as a mapped IPv6 address. A unix socket gets mode 0660: a user who may write to it
can speak for any client, so add the proxy's user to the tracker's group.
"""

import asyncio
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracker.errors import StartupError
from tracker.system.logger import Logger
from tracker.wire.endpoint import split_address

BACKLOG = 2048
"""Length of the accept queue; the system may limit it further (`net.core.somaxconn`)."""
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_TCP_DEFER_ACCEPT: int | None = getattr(socket, "TCP_DEFER_ACCEPT", None)
_TCP_TABLE, _TCP6_TABLE, _SYN_RECEIVED = "/proc/net/tcp", "/proc/net/tcp6", "03"
"""Where Linux lists its connections, and the state of those that it has not passed on."""
_QUEUE = struct.Struct("24xII")
"""Linux stores the length and the limit of the queue in TCP_INFO, as tcpi_unacked and tcpi_sacked."""
UNIX_MODE = 0o660

# From Python 3.13 on a server removes its socket file when it closes. Web processes share that file.
_KEEP_FILE: Mapping[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL)
_BIND_FAILURES = {
    errno.EADDRINUSE: "the address is in use by another process",
    errno.EACCES: "permission denied (ports below 1024 need a privilege)",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
}

log = Logger(__name__)


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound, listening socket; ``address`` is written as in the settings, with the real port. A unix socket without a
    ``path`` is a copy: its file belongs to the process that opened it."""

    socket: socket.socket
    address: str
    path: Path | None = None
    inode: tuple[int, int] | None = None
    backlog: int = BACKLOG

    @property
    def is_unix(self) -> bool:
        return self.socket.family == socket.AF_UNIX

    @property
    def queue(self) -> tuple[int, int]:
        """Length and limit of the accept queue; length 0 if the system does not report it."""
        if self.is_unix or _TCP_INFO is None or sys.platform != "linux":
            return 0, self.backlog
        length, limit = _QUEUE.unpack(self.socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _QUEUE.size))
        return length, limit

    def limit_buffers(self, receive_bytes: int, send_bytes: int) -> None:
        """Limits the system's buffers of connections accepted from now on; Linux doubles the values for its
        overhead."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)

    def defer_accept(self, seconds: int = 1) -> bool:
        """Asks the system to hold back a connection until it has sent something, for about a second at most. Returns
        whether the system does that. 0 ends it. Connections that the system holds back arrive with their request, or
        within a second."""
        if self.is_unix or _TCP_DEFER_ACCEPT is None:
            return False
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, _TCP_DEFER_ACCEPT, seconds)
        except OSError:
            return False
        return True

    @property
    def holds_back(self) -> bool:
        """Whether the system holds back connections, or waits for the last packet of a handshake. True where it does
        not tell."""
        port = f":{self.socket.getsockname()[1]:04X}"
        try:
            lines = Path(_TCP6_TABLE if self.socket.family == socket.AF_INET6 else _TCP_TABLE).read_text()
        except OSError:
            return True
        rows = (line.split(None, 4) for line in lines.splitlines()[1:])
        return any(local.endswith(port) and state == _SYN_RECEIVED for _, local, _, state, *_ in rows)

    async def accept(self, server: Callable[[], asyncio.Protocol]) -> asyncio.Server:
        """Passes connections to protocols made by ``server``, until the returned server is closed. The socket still
        listens then and can be used again; the file of a unix socket stays."""
        loop, sock = asyncio.get_running_loop(), self.socket.dup()
        options: Mapping[str, Any] = {"sock": sock, "backlog": self.backlog, "start_serving": False}
        if self.is_unix:
            accepting = await loop.create_unix_server(server, **options, **_KEEP_FILE)
        else:
            accepting = await loop.create_server(server, **options)
        try:
            await accepting.start_serving()
        except BaseException:  # cancelled: the caller has no reference to it
            accepting.close()
            raise
        return accepting

    def close(self) -> None:
        """Closes the socket, and removes the file of a unix socket unless another process has replaced it."""
        self.socket.close()
        if self.path is not None and _inode(self.path) == self.inode:
            self.path.unlink(missing_ok=True)


async def open_listeners(listen: Sequence[str], backlog: int = BACKLOG) -> list[Listener]:
    """Opens all addresses (``host:port``, ``[ipv6]:port``, ``unix:/path``), or raises StartupError and opens none. On a
    system without IPv6, IPv6 addresses are skipped with a warning, as long as one address works."""
    listeners: list[Listener] = []

    def listen_on(family: int, address: Any) -> None:
        sock, shown = bound(family, socket.SOCK_STREAM, address, (socket.SOL_SOCKET, socket.SO_REUSEADDR))
        listeners.append(Listener(sock, shown, backlog=backlog))
        sock.listen(backlog)

    try:
        for text in listen:
            if text.startswith("unix:"):
                with _errors_explained(text):
                    listeners.append(_open_unix(Path(text.removeprefix("unix:")), backlog))
            else:
                await bind_all(text, socket.SOCK_STREAM, listen_on)
        if not listeners:
            raise StartupError(f"cannot listen on {', '.join(listen) or 'no address'}: configure a usable address")
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


async def bind_all(text: str, kind: int, bind: Callable[[int, Any], None]) -> None:
    """Calls ``bind`` with the family and address of each address that ``host:port`` stands for. Raises StartupError. On
    a system without IPv6, IPv6 addresses are skipped with a warning."""
    host, port = split_address(text)
    with _errors_explained(f"{text} (UDP)" if kind == socket.SOCK_DGRAM else text):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((item[0], item[4]) for item in found):
            try:
                bind(family, address)
            except OSError as error:
                # An address that belongs to another machine is a mistake in the settings.
                everywhere = address[0] in ("::", "::1") or error.errno != errno.EADDRNOTAVAIL
                if family != socket.AF_INET6 or error.errno not in _NO_IPV6 or not everywhere:
                    raise
                log.warning("IPv6 is not available; address skipped", listen=text)


def bound(family: int, kind: int, address: Any, *options: tuple[int, int]) -> tuple[socket.socket, str]:
    """A bound socket with these options (level, name), and its address as in the settings, with the real port."""
    sock = socket.socket(family, kind)
    try:
        for option in options:
            sock.setsockopt(*option, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.setblocking(False)
        host, port = sock.getsockname()[:2]
    except BaseException:
        sock.close()
        raise
    return sock, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def _errors_explained(text: str) -> Iterator[None]:
    """Raises StartupError for an OSError in the block."""
    try:
        yield
    except OSError as error:
        reason = _BIND_FAILURES.get(error.errno or 0) or error.strerror or str(error)
        raise StartupError(f"cannot listen on {text}: {reason}") from None


def _open_unix(path: Path, backlog: int) -> Listener:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(UNIX_MODE)  # before listen(), so no client connects with the default mode
        sock.listen(backlog)
        sock.setblocking(False)
        return Listener(sock, f"unix:{path}", path, _inode(path), backlog)
    except BaseException:
        sock.close()
        raise


def _remove_stale(path: Path) -> None:
    """Removes the socket of a killed tracker. Refuses other files, and a socket that still answers."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartupError(f"cannot listen on unix:{path}: the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
