"""libtorrent sessions as peers that know a tracker and nothing else: no DHT, no local discovery, no exchange of peers.

``python -m tests.e2e.peers TORRENT FOLDER LISTEN`` seeds in a process of its own, which a test can kill -9: a
session that ends in any other way says goodbye to its tracker.
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
        """``hybrid`` has a v1 and a v2 info hash (BEP 52), else there is v1 alone."""
        folder.mkdir()
        content = random.randbytes(size)
        (folder / PAYLOAD).write_bytes(content)
        flags = lt.create_torrent.canonical_files if hybrid else lt.create_torrent.v1_only
        creator = lt.create_torrent([lt.create_file_entry(PAYLOAD, size)], piece_size=64 * 1024, flags=flags)
        creator.set_priv(private)
        lt.set_piece_hashes(creator, str(folder))
        return cls(folder, content, creator.generate())

    def torrent(self, *urls: str) -> Path:
        """A torrent file that names ``urls``, each in a tier of its own."""
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
        """All 32 bytes; it is announced by the first 20."""
        return bytes.fromhex(str(self._hashes().v2))

    def _hashes(self) -> Any:
        return lt.torrent_info(lt.bencode(self.info)).info_hashes()

    def arrives_in(self, folder: Path) -> bool:
        """Waits for the whole file: a client that has everything may not have written everything."""
        copy = folder / PAYLOAD
        until(lambda: copy.exists() and copy.read_bytes() == self.content)
        return True


class Peer:
    """One session with one torrent. ``heard`` are the alerts so far: (name, attributes)."""

    def __init__(self, torrent: Path, folder: Path, *listen: str) -> None:
        self.session = lt.session(_settings(listen or (LOOPBACK,)))
        self.heard: list[tuple[str, dict[str, Any]]] = []
        folder.mkdir(exist_ok=True)
        parameters = lt.load_torrent_file(str(torrent))
        parameters.save_path = str(folder)
        parameters.flags |= lt.torrent_flags.disable_pex
        self.handle = self.session.add_torrent(parameters)
        self.has_left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Says ``stopped`` to the tracker and waits until that is out."""
        if kind is None and not self.has_left:
            self._await_answers()
        del self.handle
        del self.session

    def until(self, name: str, seconds: float = SECONDS, **attributes: object) -> dict[str, Any]:
        """The first alert (``tracker_reply`` for libtorrent's tracker_reply_alert) that has these attributes."""
        deadline, seen = time.monotonic() + seconds, 0
        while True:
            for kind, values in self.heard[seen:]:
                if kind == name and attributes.items() <= values.items():
                    return values
            seen = len(self.heard)
            assert time.monotonic() < deadline, f"no {name} {attributes} among {self.heard}"
            self.session.wait_for_alert(100)
            # An alert dies with the next pop_alerts: what matters of it is copied.
            self.heard += [_copy(alert) for alert in self.session.pop_alerts()]

    def until_told(self, condition: Callable[[], bool]) -> None:
        """Until what the tracker was told shows. Libtorrent may finish while an announce is under way, and then keeps
        the news for its next one, an interval later; so it is asked for that, again and again.
        """
        asked = time.monotonic() + 1

        def is_told() -> bool:
            nonlocal asked
            if condition():
                return True
            if time.monotonic() > asked + 1:
                asked = time.monotonic()
                self.handle.force_reannounce(0, -1, lt.reannounce_flags_t.ignore_min_interval)
            return False

        until(is_told)

    def leave(self) -> None:
        """Takes the torrent out of the session, which says ``stopped``."""
        self._await_answers()
        self.session.remove_torrent(self.handle)  # done later, by a thread of libtorrent's
        self.has_left = True

    def _await_answers(self) -> None:
        """Until no announce is under way: libtorrent says no ``stopped`` to a tracker that still owes it an answer."""
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


def _settings(listen: Sequence[str]) -> Any:
    off = (
        "enable_dht",
        "enable_lsd",
        "enable_upnp",
        "enable_natpmp",
        "enable_outgoing_utp",
        "enable_incoming_utp",
    )
    return {
        **dict.fromkeys(off, False),
        "listen_interfaces": ",".join(listen),
        "allow_multiple_connections_per_ip": True,
        "announce_to_all_trackers": True,
        "announce_to_all_tiers": True,
        "min_announce_interval": 1,  # s; it would not believe in less than 300
        "ssrf_mitigation": False,  # else it asks loopback for no path but /announce
        "stop_tracker_timeout": 5,  # s
        "tick_interval": 100,  # ms; it acts on a clock of its own
        "alert_mask": lt.alert.category_t.all_categories,
    }


class SeederProcess:
    """A seeder that can be killed before it says goodbye. Ready when the tracker has answered it."""

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
            raise AssertionError(f"the seeder was not announced: {line}")

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
        sys.stdin.read()  # until the test ends, however it ends


if __name__ == "__main__":
    _seed(*sys.argv[1:])
