"""A socket that all callers of one server share: it is opened when one of them needs it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar


class _Socket(Protocol):
    broken: bool

    def close(self) -> None: ...


_SocketT = TypeVar("_SocketT", bound=_Socket)


class SharedSocket(Generic[_SocketT]):
    def __init__(self) -> None:
        self._socket: _SocketT | None = None
        self._opening = asyncio.Lock()

    async def opened(self, open_socket: Callable[[], Awaitable[_SocketT]]) -> _SocketT:
        """Raises what ``open_socket`` raises."""
        socket = self._socket
        if socket is not None and not socket.broken:
            return socket
        async with self._opening:
            if self._socket is None or self._socket.broken:
                self._socket = await open_socket()
            return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
