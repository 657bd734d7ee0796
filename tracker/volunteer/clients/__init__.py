"""BitTorrent clients that the volunteer's program controls."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote


class ClientUnavailable(Exception):
    """The BitTorrent client cannot be reached, or refuses us. The text is fixed, and contains no secret."""


class NotAdded(Exception):
    """The client refuses a torrent."""


@dataclass(frozen=True, slots=True)
class Torrent:
    info_hash: str  # 40 lowercase hex digits
    name: str
    size: int  # bytes of all files; 0 while unknown
    missing_bytes: int
    seeding: bool


@dataclass(frozen=True, slots=True)
class NewTorrent:
    """A torrent to add. ``metainfo`` is its .torrent file with the announce URL; empty: only the info hash is known."""

    info_hash: str
    name: str
    announce_url: str = field(repr=False)
    metainfo: bytes = field(default=b"", repr=False)

    @property
    def magnet(self) -> str:
        name = f"&dn={quote(self.name, safe='')}" if self.name else ""
        return f"magnet:?xt=urn:btih:{self.info_hash}{name}&tr={quote(self.announce_url, safe='')}"


class TorrentClient(Protocol):
    """One client. The methods block, so they are called in a thread, and raise ClientUnavailable. Only torrents that
    carry the program's label are listed, stopped or removed."""

    def torrents(self, known: Mapping[str, str]) -> list[Torrent]:
        """The torrents that this program added. ``known`` are announce URLs by info hash of those it remembers."""

    def has(self, info_hash: str) -> bool:
        """Whether the client has this torrent at all, with or without the label."""

    def add(self, new: NewTorrent) -> None:
        """Adds a torrent under the label, or completes an addition that was interrupted; without limits on its seeding.
        Raises NotAdded."""

    def stop(self, info_hash: str) -> None: ...

    def remove(self, info_hash: str, *, delete_data: bool) -> None: ...

    def free_bytes(self) -> int | None:
        """Free bytes where the client stores data; None: it does not say."""

    def close(self) -> None: ...


Errors = tuple[type[Exception], ...]


@contextmanager
def errors_of(client: str, refusals: Errors, failures: Errors) -> Iterator[None]:
    """Raises ClientUnavailable for errors of a client's library. Their texts may contain the announce URL."""
    try:
        yield
    except refusals as error:
        raise ClientUnavailable(f"{client} refuses the user name or the password") from error
    except failures as error:
        raise ClientUnavailable(f"{client} is not available ({type(error).__name__})") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ClientUnavailable(f"{client} sent something unexpected") from error
