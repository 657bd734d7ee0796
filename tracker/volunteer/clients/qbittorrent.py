"""qBittorrent, by its web API. A tag is the label."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import qbittorrentapi
from requests.exceptions import RequestException

from tracker.volunteer.clients import ClientUnavailable, NewTorrent, NotAdded, Torrent, errors_of

SEEDING = frozenset({"uploading", "stalledUP", "queuedUP", "forcedUP"})
_SECONDS = 30.0
_REFUSALS = (qbittorrentapi.LoginFailed, qbittorrentapi.Forbidden403Error)
_errors = partial(errors_of, "qBittorrent", _REFUSALS, (qbittorrentapi.APIError, RequestException))
_APPEARS_SECONDS = 30.0
"""A torrent is listed about two seconds after it was added."""
_POLL_SECONDS = 0.2
_UNLIMITED = -1


class QBittorrent:
    """``url`` is that of the web interface, ``folder`` where data goes (empty: the client's default)."""

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        *,
        label: str,
        folder: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = qbittorrentapi.Client(
            host=url,
            username=user or None,
            password=password or None,
            REQUESTS_ARGS={"timeout": _SECONDS, "allow_redirects": False},
            FORCE_SCHEME_FROM_HOST=True,
            DISABLE_LOGGING_DEBUG_OUTPUT=True,
        )
        self._label = label
        self._folder = folder
        self._sleep = sleep
        self._ids: dict[str, str] = {}

    def torrents(self, known: Mapping[str, str]) -> list[Torrent]:
        with _errors():
            rows: Any = self._api.torrents_info(tag=self._label)
            found = []
            for row in rows:
                if self._label not in str(row.get("tags", "")).split(", "):
                    continue  # an old client, which ignores the filter
                names = _names(row)
                info_hash = next((name for name in names if name in known), names[0])
                self._ids[info_hash] = str(row["hash"])
                size, missing_bytes = (max(0, int(row.get(name, 0))) for name in ("total_size", "amount_left"))
                found.append(Torrent(info_hash, str(row["name"]), size, missing_bytes, row["state"] in SEEDING))
            return found

    def has(self, info_hash: str) -> bool:
        with _errors():
            direct = self._api.torrents_info(torrent_hashes=info_hash)
            # A hybrid torrent is listed by its v2 hash.
            return any(info_hash in _names(row) for row in direct or self._api.torrents_info())

    def add(self, new: NewTorrent) -> None:
        if self.has(new.info_hash):
            return
        with _errors():
            try:
                reply = self._api.torrents_add(
                    urls=None if new.metainfo else new.magnet,
                    torrent_files=new.metainfo or None,
                    save_path=self._folder or None,
                    use_auto_torrent_management=False if self._folder else None,
                    tags=self._label,
                    ratio_limit=_UNLIMITED,
                    seeding_time_limit=_UNLIMITED,
                    inactive_seeding_time_limit=_UNLIMITED,
                )
            except qbittorrentapi.UnsupportedMediaType415Error:
                raise NotAdded from None
        if reply == "Fails.":
            raise NotAdded
        for _ in range(int(_APPEARS_SECONDS / _POLL_SECONDS)):
            if self.has(new.info_hash):
                return
            self._sleep(_POLL_SECONDS)
        raise ClientUnavailable("qBittorrent does not list a torrent that it accepted")

    def stop(self, info_hash: str) -> None:
        with _errors():
            self._api.torrents_stop(torrent_hashes=self._ids.get(info_hash, info_hash))

    def remove(self, info_hash: str, *, delete_data: bool) -> None:
        with _errors():
            self._api.torrents_delete(torrent_hashes=self._ids.get(info_hash, info_hash), delete_files=delete_data)

    def free_bytes(self) -> int | None:
        """Free bytes of the client's default folder."""
        with _errors():
            server: Any = self._api.sync_maindata().server_state
            free = server.get("free_space_on_disk")
            return free if isinstance(free, int) and free >= 0 else None

    def close(self) -> None:
        with _errors():
            self._api.auth_log_out()


def _names(row: Mapping[str, Any]) -> list[str]:
    """The info hashes of a torrent, v1 first; a v2 hash is cut to 20 bytes."""
    names = [row.get("infohash_v1"), row["hash"], str(row.get("infohash_v2") or "")[:40]]
    return list(dict.fromkeys(str(name).lower() for name in names if name))
