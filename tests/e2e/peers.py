"""libtorrent sessions as peers. They find each other through the tracker only: DHT, local discovery and peer exchange
are off.

``python -m tests.e2e.peers TORRENT FOLDER LISTEN`` seeds in a separate process, which a test can kill. A session
that ends normally announces ``stopped``.
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import libtorrent as lt

from loadtest.servers import ROOT
from tests.waiting import SECONDS, until

SIZE = 3 * 1024 * 1024 + 12_345
PAYLOAD = "payload.bin"
ANNOUNCED = "announced"
LOOPBACK = "127.0.0.1:0"
LOOPBACK6 = "[::1]:0"


@dataclass(frozen=True)
class Share:
    """A file to exchange. Its info hashes do not depend on the announce URLs in a torrent file."""

    folder: Path
    content: bytes
    info: dict[bytes, Any]

    @classmethod
    def make(cls, folder: Path, *, private: bool = False, hybrid: bool = False, size: int = SIZE) -> "Share":
        """With ``hybrid`` it has a v1 and a v2 info hash (BEP 52), else only v1."""
        folder.mkdir()
        content = random.randbytes(size)
        (folder / PAYLOAD).write_bytes(content)
        flags = lt.create_torrent.canonical_files if hybrid else lt.create_torrent.v1_only
        creator = lt.create_torrent([lt.create_file_entry(PAYLOAD, size)], piece_size=64 * 1024, flags=flags)
        creator.set_priv(private)
        lt.set_piece_hashes(creator, str(folder))
        return cls(folder, content, creator.generate())

    def torrent(self, *urls: str) -> Path:
        """Writes a torrent file with these announce URLs, one per tier."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}.torrent"
        named: dict[bytes, Any] = {b"announce": urls[0].encode()} if urls else {}
        named |= {b"announce-list": [[url.encode()] for url in urls]} if len(urls) > 1 else {}
        path.write_bytes(lt.bencode({**self.info, **named}))
        return path

    @property
    def info_hash(self) -> bytes:
        return bytes.fromhex(str(self._hashes().v1))

    @property
    def info_hash_v2(self) -> bytes:
        """32 bytes. Announces contain the first 20."""
        return bytes.fromhex(str(self._hashes().v2))

    def _hashes(self) -> Any:
        return lt.torrent_info(lt.bencode(self.info)).info_hashes()

    def arrives_in(self, folder: Path) -> bool:
        """Waits until the file in ``folder`` is complete: a client may finish before it has written everything."""
        copy = folder / PAYLOAD
        until(lambda: copy.exists() and copy.read_bytes() == self.content)
        return True


class Peer:
    """One session with one torrent. ``alerts`` are those received so far: (name, attributes)."""

    def __init__(self, torrent: Path, folder: Path, *listen: str, file_priorities: Sequence[int] = ()) -> None:
        self.session = lt.session(settings(listen or (LOOPBACK,)))
        self.alerts: list[tuple[str, dict[str, Any]]] = []
        folder.mkdir(exist_ok=True)
        parameters = lt.load_torrent_file(str(torrent))
        parameters.save_path = str(folder)
        parameters.file_priorities = list(file_priorities)
        parameters.flags |= lt.torrent_flags.disable_pex
        self.handle = self.session.add_torrent(parameters)
        self.has_left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Announces ``stopped`` and waits until it is sent."""
        if kind is None and not self.has_left:
            self._await_answers()
        del self.handle
        del self.session

    def until(self, name: str, seconds: float = SECONDS, **attributes: object) -> dict[str, Any]:
        """Waits for an alert with these attributes and returns them all. ``tracker_reply`` is libtorrent's
        tracker_reply_alert."""
        deadline, seen = time.monotonic() + seconds, 0
        while True:
            for kind, values in self.alerts[seen:]:
                if kind == name and attributes.items() <= values.items():
                    return values
            seen = len(self.alerts)
            assert time.monotonic() < deadline, f"no {name} {attributes} among {self.alerts}"
            self.session.wait_for_alert(100)
            # The next pop_alerts() invalidates these alerts, so their attributes are copied.
            self.alerts += [_copy(alert) for alert in self.session.pop_alerts()]

    def announce_until(self, condition: Callable[[], bool]) -> None:
        """Announces once a second until the condition holds.

        If a download finishes during an announce, libtorrent reports it in the next announce, an interval later.
        """
        last = time.monotonic() + 1

        def is_reported() -> bool:
            nonlocal last
            if condition():
                return True
            if time.monotonic() > last + 1:
                last = time.monotonic()
                self.handle.force_reannounce(0, -1, lt.reannounce_flags_t.ignore_min_interval)
            return False

        until(is_reported)

    def leave(self) -> None:
        """Removes the torrent from the session, which then announces ``stopped``."""
        self._await_answers()
        self.session.remove_torrent(self.handle)  # a thread of libtorrent does it later
        self.has_left = True

    def _await_answers(self) -> None:
        """Waits until no announce is in progress: libtorrent sends no ``stopped`` before the reply to the last one."""
        until(
            lambda: (
                not any(
                    announce["updating"]
                    for tracker in self.handle.trackers()
                    for endpoint in tracker["endpoints"]
                    for announce in endpoint["info_hashes"]
                )
            )
        )


_COPIED = ("tracker_url", "num_peers", "complete", "incomplete", "error_message", "failure_reason", "event")


def _copy(alert: Any) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {"text": alert.message()}
    for name in _COPIED:
        value = getattr(alert, name, None)
        if value is not None:
            values[name] = value() if callable(value) else value
    return type(alert).__name__.removesuffix("_alert"), values


def settings(listen: Sequence[str]) -> Any:
    off = ("enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp", "enable_outgoing_utp", "enable_incoming_utp")
    return {
        **dict.fromkeys(off, False),
        "listen_interfaces": ",".join(listen),
        "allow_multiple_connections_per_ip": True,
        "announce_to_all_trackers": True,
        "announce_to_all_tiers": True,
        "min_announce_interval": 1,  # s; otherwise libtorrent uses at least 300
        "ssrf_mitigation": False,  # otherwise it requests only /announce from loopback
        "stop_tracker_timeout": 5,  # s
        "tick_interval": 100,  # ms between two rounds of its timer
        "alert_mask": lt.alert.category_t.all_categories,
    }


class SeederProcess:
    """A seeder in a separate process, which a test can kill. The constructor waits for the tracker's reply."""

    def __init__(self, torrent: Path, folder: Path, listen: str = LOOPBACK) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.peers", str(torrent), str(folder), listen],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line.strip() != ANNOUNCED:
            self.kill()
            raise AssertionError(f"the seeder got no reply: {line}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _seed(torrent: str, folder: str, listen: str) -> None:
    with Peer(Path(torrent), Path(folder), listen) as seeder:
        seeder.until("tracker_reply")
        print(ANNOUNCED, flush=True)  # noqa: T201  # what the test waits for
        sys.stdin.read()  # until the test ends


if __name__ == "__main__":
    _seed(*sys.argv[1:])
