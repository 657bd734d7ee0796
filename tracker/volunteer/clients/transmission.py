"""Transmission, by its RPC.

Transmission 3.00 ignores labels of a torrent that is being added, so they are set right after. A torrent that was added
and not labelled yet is recognised by its announce URL, if the program remembers that it was adding it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import transmission_rpc
from requests.exceptions import RequestException

from tracker.volunteer.clients import ClientUnavailable, NewTorrent, NotAdded, Torrent, errors_of

_SECONDS = 30.0
_FAILURES = (transmission_rpc.TransmissionError, RequestException)
_errors = partial(errors_of, "Transmission", (transmission_rpc.TransmissionAuthError,), _FAILURES)
_FIELDS = ("id", "name", "hashString", "labels", "status", "totalSize", "leftUntilDone", "trackers")
_UNLIMITED = 2


class Transmission:
    """``url`` is that of the RPC, ``folder`` where data goes (empty: the client's default)."""

    def __init__(self, url: str, user: str, password: str, *, label: str, folder: str = "") -> None:
        self._url = urlsplit(url)
        self._user = user
        self._password = password
        self._label = label
        self._folder = folder
        self._connected: transmission_rpc.Client | None = None

    @property
    def _rpc(self) -> transmission_rpc.Client:
        """Connects at the first call."""
        if self._connected is None:
            url = self._url
            rpc = transmission_rpc.Client(
                protocol="https" if url.scheme == "https" else "http",
                host=url.hostname or "127.0.0.1",
                port=url.port or 9091,
                path=url.path if url.path not in ("", "/") else "/transmission/rpc",
                username=self._user or None,
                password=self._password or None,
                timeout=_SECONDS,
            )
            if rpc.get_session().rpc_version < 16:
                raise ClientUnavailable("Transmission 3.00 or newer is needed: older ones have no labels")
            self._connected = rpc
        return self._connected

    def torrents(self, known: Mapping[str, str]) -> list[Torrent]:
        with _errors():
            rows = self._rpc.get_torrents(arguments=_FIELDS)
            return [_torrent(row) for row in rows if self._label in row.labels]

    def has(self, info_hash: str) -> bool:
        return self._row(info_hash) is not None

    def _row(self, info_hash: str) -> transmission_rpc.Torrent | None:
        with _errors():
            rows = self._rpc.get_torrents([info_hash], arguments=_FIELDS)
            return rows[0] if rows else None

    def add(self, new: NewTorrent) -> None:
        row = self._row(new.info_hash)
        announced = {str(each.get("announce")) for each in row.fields["trackers"]} if row is not None else set()
        if row is not None and self._label not in row.labels and new.announce_url not in announced:
            return  # a person added it meanwhile
        with _errors():
            if row is None:
                try:
                    self._rpc.add_torrent(new.metainfo or new.magnet, download_dir=self._folder or None, paused=True)
                except transmission_rpc.TransmissionError as error:
                    if "invalid or corrupt" in str(error.message):
                        raise NotAdded from None
                    raise
            self._rpc.change_torrent(
                [new.info_hash], labels=[self._label], seed_ratio_mode=_UNLIMITED, seed_idle_mode=_UNLIMITED
            )
            self._rpc.start_torrent([new.info_hash])

    def stop(self, info_hash: str) -> None:
        with _errors():
            self._rpc.stop_torrent([info_hash])

    def remove(self, info_hash: str, *, delete_data: bool) -> None:
        with _errors():
            self._rpc.remove_torrent([info_hash], delete_data=delete_data)

    def free_bytes(self) -> int | None:
        with _errors():
            folder = self._folder or str(self._rpc.get_session().download_dir)
            free = self._rpc.free_space(folder)
            return free if free is not None and free >= 0 else None

    def close(self) -> None:
        self._connected = None


def _torrent(row: transmission_rpc.Torrent) -> Torrent:
    fields: Mapping[str, Any] = row.fields
    return Torrent(
        str(fields["hashString"]).lower(),
        str(fields["name"]),
        int(fields["totalSize"]),
        int(fields["leftUntilDone"]),
        row.status in ("seeding", "seed pending") and not int(fields["leftUntilDone"]),
    )
