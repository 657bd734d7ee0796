"""The sockets a front end listens on: TCP over both families, and unix sockets.

IPv6 sockets take IPv6 only, whatever the system's default is, so ``0.0.0.0:6969`` and ``[::]:6969``
live side by side and an IPv4 peer is never seen as a mapped IPv6 one.
A unix socket gets mode 0660: who may write to it may speak for any client, so put the proxy's user
into the tracker's group.
"""

import asyncio
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from tracker.errors import StartupError
from tracker.setting_types import split_address

BACKLOG = 2048
"""Connections that may wait to be accepted; the system may cap it lower (`net.core.somaxconn`)."""
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_QUEUE = struct.Struct("24xII")
"""Where a listening socket's TCP_INFO has it and its limit, in the places of segments not acknowledged and selectively so (Linux)."""
UNIX_MODE = 0o660

# From Python 3.13 on a server removes the file of its socket when it closes: in a web process that would be everybody's.
_KEEP_FILE: Mapping[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL)
_REASONS = {
    errno.EADDRINUSE: "it is in use by another process",
    errno.EACCES: "this user may not (ports below 1024 need a privilege)",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound, listening socket; ``address`` is written as in the settings, with the real port.

    Without a ``path`` a unix socket's file is somebody else's, who opened it and has handed on a copy.
    """

    socket: socket.socket
    address: str
    path: Path | None = None
    inode: tuple[int, int] | None = None

    @property
    def is_unix(self) -> bool:
        return self.socket.family == socket.AF_UNIX

    @property
    def queue(self) -> tuple[int, int]:
        """Connections that wait to be accepted, and how many may; no one where the system does not say."""
        if self.is_unix or _TCP_INFO is None or sys.platform != "linux":
            return 0, BACKLOG
        length, most = _QUEUE.unpack(self.socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _QUEUE.size))
        return length, most

    async def accept(self, server: Callable[[], asyncio.Protocol]) -> asyncio.Server:
        """Starts to hand connections to protocols that ``server`` makes, until what it gives is closed.

        The socket goes on listening, and may be accepted from again; a unix socket's file stays.
        """
        loop, sock = asyncio.get_running_loop(), self.socket.dup()
        options: Mapping[str, Any] = {"sock": sock, "backlog": BACKLOG, "start_serving": False}
        if self.is_unix:
            accepting = await loop.create_unix_server(server, **options, **_KEEP_FILE)
        else:
            accepting = await loop.create_server(server, **options)
        try:
            await accepting.start_serving()
        except BaseException:  # cancelled: nobody else would close it
            accepting.close()
            raise
        return accepting

    def close(self) -> None:
        """Close the socket; a unix socket's file goes too, unless somebody else's has taken its place."""
        self.socket.close()
        if self.path is not None and _inode(self.path) == self.inode:
            self.path.unlink(missing_ok=True)


async def open_listeners(listen: Sequence[str]) -> list[Listener]:
    """Open every address (``host:port``, ``[ipv6]:port``, ``unix:/path``) or none: StartupError says why.

    IPv6 addresses on a system without IPv6 are left out with a warning, as long as one listener works.
    """
    listeners: list[Listener] = []
    try:
        for text in listen:
            listeners += await _open(text)
        if not listeners:
            raise StartupError(
                f"cannot listen on {', '.join(listen) or 'nothing'}: name an address that works"
            )
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


async def _open(text: str) -> list[Listener]:
    try:
        if text.startswith("unix:"):
            return [_open_unix(Path(text.removeprefix("unix:")))]
        host, port = split_address(text)
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return [
            listener
            for family, address in dict.fromkeys((item[0], item[4]) for item in found)
            if (listener := _open_tcp(text, family, address)) is not None
        ]
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
        raise StartupError(f"cannot listen on {text}: {reason}") from None


def _open_tcp(text: str, family: int, address: Any) -> Listener | None:
    """A listening TCP socket, or None where the system has no IPv6 at all."""
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            return _listening(sock, address)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        if not _lacks_ipv6(error, family, address[0]):
            raise
        log.warning("IPv6 is not available here: going on without", listen=text)
        return None


def _listening(sock: socket.socket, address: Any) -> Listener:
    sock.bind(address)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    host, port = sock.getsockname()[:2]
    return Listener(sock, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def _lacks_ipv6(error: OSError, family: int, host: str) -> bool:
    """Whether the system is to blame; an address of another machine is the operator's mistake."""
    everywhere = host in ("::", "::1") or error.errno != errno.EADDRNOTAVAIL
    return family == socket.AF_INET6 and error.errno in _NO_IPV6 and everywhere


def _open_unix(path: Path) -> Listener:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(UNIX_MODE)  # nobody can connect before listen(), so there is no moment of another mode
        sock.listen(BACKLOG)
        sock.setblocking(False)
        return Listener(sock, f"unix:{path}", path, _inode(path))
    except BaseException:
        sock.close()
        raise


def _remove_stale(path: Path) -> None:
    """Remove what a killed tracker left; refuse what is no socket or still answers."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartupError(f"cannot listen on unix:{path}: a file that is not a socket is in the way")
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
