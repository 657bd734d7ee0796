"""Real clients seed on loopback, plain and with encryption required, and are probed.

W25: a client that only takes encrypted connections cannot be checked, and is never called a liar.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

import libtorrent as lt

from loadtest.servers import free_port
from tests.e2e.peers import Peer, Share
from tests.e2e.processes import running
from tests.waiting import eventually, until
from tests.workers.prober.peers import loopback, prober
from tracker.bittorrent import Endpoint, InfoHash
from tracker.wire.torrent_file import Pieces, parse_torrent_file
from tracker.workers.prober import Level, Status

pytestmark = pytest.mark.slow
SIZE = 3_500_000


@dataclass(frozen=True)
class Shared:
    """A torrent that libtorrent seeds. ``pieces`` is ``None`` for v2."""

    endpoint: Endpoint
    info_hash: InfoHash
    pieces: Pieces | None

    async def probe(self, level: Level = Level.HANDSHAKE) -> Status:
        """At level ``piece`` the last one, the only one that may be shorter or end with padding."""
        last = self.pieces.count - 1 if self.pieces else 0
        return await prober(piece=last).check(self.endpoint, self.info_hash, level, self.pieces)


@contextmanager
def libtorrent_seeds(
    folder: Path, *, flags: int, files: Sequence[str] = ("payload.bin",), own: Path | None = None, **settings: Any
) -> Iterator[Shared]:
    """``own``: the folder with the seeder's data, by default the whole content."""
    (source := folder / "source").mkdir()
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(os.urandom(SIZE // len(files) + 777))
    entries = [lt.create_file_entry(name, (source / name).stat().st_size) for name in files]
    creator = lt.create_torrent(entries, piece_size=16 * 1024, flags=flags)
    lt.set_piece_hashes(creator, str(source))
    (folder / "it.torrent").write_bytes(data := lt.bencode(creator.generate()))
    with Peer(folder / "it.torrent", own or source) as seeder:
        seeder.session.apply_settings(cast(Any, settings))
        until(lambda: seeder.handle.status().state not in (_CHECKING, _RESUMING))
        hashes = lt.torrent_info(str(folder / "it.torrent")).info_hashes()
        raw = hashes.v1.to_bytes() if hashes.has_v1() else hashes.v2.to_bytes()[:20]
        yield Shared(loopback(seeder.session.listen_port()), InfoHash(raw), parse_torrent_file(data).pieces)


_CHECKING, _RESUMING = lt.torrent_status.checking_files, lt.torrent_status.checking_resume_data
V1, HYBRID, V2 = lt.create_torrent.v1_only, lt.create_torrent.canonical_files, lt.create_torrent.v2_only
FILES = ("top/a/first.bin", "top/second.bin", "top/third.txt")
ENCRYPTED: dict[str, Any] = {"in_enc_policy": lt.enc_policy.pe_forced, "out_enc_policy": lt.enc_policy.pe_forced}


class TestLibtorrent:
    @pytest.mark.parametrize(
        ("flags", "files"),
        [(V1, ("payload.bin",)), (V1, FILES), (HYBRID, FILES)],
        ids=["single file", "several files", "hybrid with padding"],
    )
    async def test_a_seeder_is_confirmed_at_both_levels(self, tmp_path: Path, flags: int, files: Sequence[str]) -> None:
        with libtorrent_seeds(tmp_path, flags=flags, files=files) as shared:
            assert shared.pieces is not None and shared.pieces.count > 200
            assert await shared.probe() is Status.CONFIRMED
            assert await shared.probe(Level.PIECE) is Status.CONFIRMED

    async def test_a_v2_torrent_is_confirmed_by_its_handshake_only(self, tmp_path: Path) -> None:
        with libtorrent_seeds(tmp_path, flags=V2, files=FILES) as shared:
            assert shared.pieces is None
            assert await shared.probe() is Status.CONFIRMED
            assert await shared.probe(Level.PIECE) is Status.UNKNOWN

    @pytest.mark.parametrize("level", list(Level))
    async def test_an_encryption_only_seeder_is_no_liar(self, tmp_path: Path, level: Level) -> None:
        with libtorrent_seeds(tmp_path, flags=V1, **ENCRYPTED) as shared:
            assert await shared.probe(level) is Status.UNKNOWN

    @pytest.mark.parametrize("level", list(Level))
    async def test_a_client_without_the_torrent_behaves_the_same(self, tmp_path: Path, level: Level) -> None:
        with libtorrent_seeds(tmp_path, flags=V1) as shared:
            other = Shared(shared.endpoint, InfoHash(b"o" * 20), shared.pieces)
            assert await other.probe(level) is Status.UNKNOWN

    async def test_a_client_with_half_of_the_pieces_has_lied(self, tmp_path: Path) -> None:
        """It announced all of them: ``pieces`` are given for seeders only."""
        (own := tmp_path / "own").mkdir()

        def halve() -> None:
            content = (tmp_path / "source" / "payload.bin").read_bytes()
            (own / "payload.bin").write_bytes(content[: SIZE // 2])

        with libtorrent_seeds(tmp_path, flags=V1, own=own) as shared:
            pass
        halve()
        with Peer(tmp_path / "it.torrent", own) as leecher:
            await eventually(lambda: leecher.handle.status().state == lt.torrent_status.downloading)
            assert 50 < leecher.handle.status().num_pieces < 150
            half = Shared(loopback(leecher.session.listen_port()), shared.info_hash, shared.pieces)
            for level in Level:
                assert await half.probe(level) is Status.LIED

    async def test_a_super_seeder_is_no_liar(self, tmp_path: Path) -> None:
        """BEP 16: it shows no pieces, and then single ones."""
        with libtorrent_seeds(tmp_path, flags=V1) as shared:
            pass
        with Peer(tmp_path / "it.torrent", tmp_path / "source") as seeder:
            await eventually(lambda: bool(seeder.handle.status().is_seeding))
            seeder.handle.set_flags(lt.torrent_flags.super_seeding)
            await eventually(lambda: bool(seeder.handle.flags() & lt.torrent_flags.super_seeding))
            there = loopback(seeder.session.listen_port())
            assert await prober().check(there, shared.info_hash) is Status.CONFIRMED
            found = await prober(5.0).check(there, shared.info_hash, Level.HANDSHAKE, shared.pieces)
        assert found is Status.UNKNOWN


def transmission(torrent: Path, folder: Path, port: int, *, encrypted: bool) -> list[str]:
    (watched := folder / "watched").mkdir()
    shutil.copy(torrent, watched / "it.torrent")
    off = ("dht-enabled", "lpd-enabled", "pex-enabled", "port-forwarding-enabled", "utp-enabled", "rpc-enabled")
    settings = {
        **dict.fromkeys(off, False),
        "bind-address-ipv4": "127.0.0.1",
        "bind-address-ipv6": "::1",
        "download-dir": str(folder),
        "encryption": 2 if encrypted else 1,
        "peer-port": port,
        "watch-dir": str(watched),
        "watch-dir-enabled": True,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return ["transmission-daemon", "--foreground", "--config-dir", str(folder)]


def aria2(torrent: Path, folder: Path, port: int, *, encrypted: bool) -> list[str]:
    off = ("enable-dht", "enable-dht6", "bt-enable-lpd", "enable-peer-exchange")
    words = ["--no-conf", *(f"--{name}=false" for name in off), f"--listen-port={port}", "--check-integrity"]
    words += ["--bt-force-encryption"] if encrypted else []
    return ["aria2c", *words, "--seed-ratio=0", f"--dir={folder}", str(torrent)]


Command = Callable[..., list[str]]


PLAIN_CLIENTS = [pytest.param(transmission, marks=pytest.mark.long), aria2]
"""Transmission unchokes every 10 s, and closes a second connection that comes soon after the first."""


@contextmanager
def other_client_seeds(folder: Path, command: Command, *, encrypted: bool) -> Iterator[Shared]:
    program = {transmission: "transmission-daemon", aria2: "aria2c"}[command]
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on this system")
    share = Share.make(folder / "source", size=SIZE)
    pieces = parse_torrent_file((torrent := share.torrent()).read_bytes()).pieces
    with running(command(torrent, share.folder, port := free_port(), encrypted=encrypted), folder / "output"):
        yield Shared(loopback(port), InfoHash(share.info_hash), pieces)


class TestOtherClients:
    @pytest.mark.parametrize("command", PLAIN_CLIENTS)
    async def test_a_seeder_is_confirmed_at_both_levels(self, tmp_path: Path, command: Command) -> None:
        with other_client_seeds(tmp_path, command, encrypted=False) as shared:
            for level in Level:

                async def is_confirmed(level: Level = level) -> bool:
                    found = await shared.probe(level)
                    assert found is not Status.LIED
                    return found is Status.CONFIRMED

                await eventually(is_confirmed)

    @pytest.mark.parametrize("command", [transmission, aria2])
    async def test_an_encryption_only_seeder_is_no_liar(self, tmp_path: Path, command: Command) -> None:
        with other_client_seeds(tmp_path, command, encrypted=True) as shared:
            await eventually(lambda: _connects(int.from_bytes(shared.endpoint[-2:], "big")), ignored=(OSError,))
            for level in Level:
                assert await shared.probe(level) is Status.UNKNOWN


async def _connects(port: int) -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.transport.abort()
    return True
