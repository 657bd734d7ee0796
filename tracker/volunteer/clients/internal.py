"""libtorrent in this process, for volunteers without another client. All its torrents are the program's own."""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import libtorrent as lt

from tracker.errors import ClientError
from tracker.system.private_file import private_file
from tracker.volunteer.clients import ClientUnavailable, NewTorrent, NotAdded, Torrent

_RECORDS = ".swarmkeeper"
_SUFFIX = ".resume"
_WAIT_SECONDS = 10.0
_POLL_MS = 200
_BOOLS = {"true": True, "false": False, "1": True, "0": False}
_MAX_RESUME_BYTES = 64 * 1024 * 1024


class Internal:
    """Seeds from ``folder``, where it also keeps a record of each torrent. ``settings`` are libtorrent's."""

    def __init__(
        self, folder: Path, *, settings: Mapping[str, Any] | None = None, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._records = folder / _RECORDS
        self._timer = timer
        self._handles: dict[str, Any] = {}
        self._records.mkdir(parents=True, exist_ok=True)
        mask = lt.alert.category_t.error_notification | lt.alert.category_t.storage_notification
        options: Any = {"alert_mask": mask | lt.alert.category_t.status_notification, **(settings or {})}
        self._session = lt.session(options)
        for path in sorted(self._records.glob(f"*{_SUFFIX}")):
            self._load(path)

    def _load(self, path: Path) -> None:
        """A record that cannot be read is left alone: its torrent counts as missing."""
        try:
            if path.stat().st_size > _MAX_RESUME_BYTES:
                return
            params = lt.read_resume_data(path.read_bytes())
            if not all(params.have_pieces):
                # After a kill the record of a download is older than its data. Without pieces all data is checked.
                params.have_pieces, params.unfinished_pieces = [], {}
            self._start(path.stem, params)
        except (OSError, RuntimeError):
            return

    def _start(self, info_hash: str, params: Any) -> None:
        params.save_path = str(self._folder)
        params.flags &= ~(lt.torrent_flags.auto_managed | lt.torrent_flags.paused)
        self._handles[info_hash] = self._session.add_torrent(params)

    def torrents(self, known: Mapping[str, str]) -> list[Torrent]:
        del known
        self._save(only_changed=True)
        rows = [(info_hash, handle.status()) for info_hash, handle in self._handles.items()]
        return [
            Torrent(info_hash, row.name, row.total, max(0, row.total_wanted - row.total_wanted_done), row.is_seeding)
            for info_hash, row in rows
        ]

    def has(self, info_hash: str) -> bool:
        return info_hash in self._handles

    def add(self, new: NewTorrent) -> None:
        if new.info_hash in self._handles:
            return
        try:
            params = lt.load_torrent_buffer(new.metainfo) if new.metainfo else lt.parse_magnet_uri(new.magnet)
        except RuntimeError:
            raise NotAdded from None
        params.save_path = str(self._folder)
        try:
            self._write(new.info_hash, params)
            self._start(new.info_hash, params)
        except (OSError, RuntimeError) as error:
            raise ClientUnavailable("the folder or libtorrent refuses a torrent") from error

    def _write(self, info_hash: str, params: Any) -> None:
        with private_file(self._records / f"{info_hash}{_SUFFIX}") as file:
            file.write(lt.write_resume_data_buf(params))

    def stop(self, info_hash: str) -> None:
        if info_hash in self._handles:
            self._handles[info_hash].pause()

    def remove(self, info_hash: str, *, delete_data: bool) -> None:
        handle = self._handles.pop(info_hash, None)
        if handle is None:
            return
        self._session.remove_torrent(handle, lt.session.delete_files if delete_data else 0)
        if delete_data:
            self._await(("torrent_deleted_alert", "torrent_delete_failed_alert"), 1, lambda alert: None)
        (self._records / f"{info_hash}{_SUFFIX}").unlink(missing_ok=True)

    def free_bytes(self) -> int | None:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError as error:
            raise ClientUnavailable("the folder is not available") from error

    def close(self) -> None:
        """Keeps what is known of the pieces, and leaves the swarms."""
        self._save(only_changed=False)
        self._handles.clear()
        self._session.pause()
        del self._session

    def _save(self, *, only_changed: bool) -> None:
        flags = lt.save_resume_flags_t.save_info_dict
        if only_changed:
            flags |= lt.save_resume_flags_t.only_if_modified
        for handle in self._handles.values():
            handle.save_resume_data(flags)
        by_handle = {handle: info_hash for info_hash, handle in self._handles.items()}
        saved, failed = "save_resume_data_alert", "save_resume_data_failed_alert"

        def write(alert: Any) -> None:
            if type(alert).__name__ == saved and alert.handle in by_handle:
                self._write(by_handle[alert.handle], alert.params)

        self._await((saved, failed), len(by_handle), write)

    def _await(self, names: tuple[str, ...], count: int, handle: Callable[[Any], None]) -> None:
        """Handles up to ``count`` alerts of these names that arrive in time. One is valid until the next are taken."""
        deadline = self._timer() + _WAIT_SECONDS
        while count > 0 and self._timer() < deadline:
            self._session.wait_for_alert(_POLL_MS)
            for alert in self._session.pop_alerts():
                if type(alert).__name__ in names:
                    handle(alert)
                    count -= 1


def typed_settings(texts: Mapping[str, str]) -> dict[str, bool | int | str]:
    """libtorrent's settings of these names from their values as text. Raises ClientError."""
    defaults = lt.default_settings()
    found: dict[str, bool | int | str] = {}
    for name, text in texts.items():
        default: Any = defaults.get(name)
        try:
            if default is None:
                raise ValueError
            found[name] = _BOOLS[text] if isinstance(default, bool) else type(default)(text)
        except (KeyError, ValueError):
            raise ClientError("--client has a setting that libtorrent does not know, or of a wrong type") from None
    return found
