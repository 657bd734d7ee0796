"""What must hold after a fault: what was promised is there, who is gone is gone, and the store agrees with itself."""

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from operator import sub
from typing import Any

from drills.fleet import Fleet, Peer
from drills.scene import PREFIX, REAP_SECONDS, Scene
from tests.store.invariants import check_invariants
from tracker.bittorrent import InfoHash, PeerId
from tracker.store.keys import Keys

KEYS = Keys(PREFIX)
_QUIET_SECONDS = 5.0
_BLUNDERS = re.compile(r"Traceback|internal error|Unclosed|never retrieved|never awaited")


@dataclass(slots=True)
class Findings:
    """``complaints`` is what went wrong; the rest are figures."""

    complaints: list[str] = field(default_factory=list)
    refused: int = 0
    closed: int = 0
    outage_seconds: float = 0.0
    """The longest time in which nobody was answered."""
    slowest_seconds: float = 0.0
    lost: int = 0
    healed_seconds: float = 0.0
    settled_seconds: float = 0.0
    peers: int = 0


def clients_view(fleet: Fleet, fault: float, findings: Findings) -> None:
    """What the clients got since the fault, of time.monotonic."""
    since = [heard for heard in fleet.heard if heard.at >= fault]
    hows = Counter(heard.how for heard in since)
    findings.refused, findings.closed = hows["refused"], hows["closed"] + hows["unreachable"]
    bad = [heard for heard in fleet.heard if heard.how in ("odd", "hung")]
    findings.complaints += sorted({f"clients got {heard.how}: {heard.what}" for heard in bad})
    early = [heard for heard in fleet.heard if heard.at < fault and heard.how != "answered"]
    if early:
        findings.complaints.append(f"{len(early)} announces failed before the fault: {early[0].what}")
    moments = [fault, *sorted(heard.at for heard in since if heard.how == "answered")]
    findings.outage_seconds = max(map(sub, moments[1:], moments), default=time.monotonic() - fault)
    findings.slowest_seconds = max((heard.at - heard.sent for heard in since), default=0.0)


async def missing_announces(redis: Any, promised: Counter[bytes]) -> int:
    """Announces that were answered and that the store does not count."""
    missing = 0
    for info_hash, answered in promised.items():
        counted = int(await redis.hget(KEYS.torrent(InfoHash(info_hash)), "announces") or 0)
        missing += max(0, answered - counted)
    return missing


async def members_of(redis: Any, info_hash: bytes) -> set[bytes]:
    listed = await redis.smembers(KEYS.swarm_peers(InfoHash(info_hash)))
    return {bytes.fromhex(member.decode()) for member in listed}


async def settled(redis: Any, fleet: Fleet, findings: Findings, seconds: float) -> None:
    """Nobody comes or goes any more: waits, at most for ``seconds``, until the swarms are those who announce, and no others."""
    began = time.monotonic()
    expected: dict[bytes, set[bytes]] = {info_hash: set() for info_hash in fleet.ledger}
    for peer in fleet.aboard.values():
        expected.setdefault(peer.info_hash, set()).add(peer.peer_id)
    while True:
        found = {info_hash: await members_of(redis, info_hash) for info_hash in expected}
        findings.settled_seconds = time.monotonic() - began
        if found == expected:
            break
        if findings.settled_seconds > seconds:
            ghosts = sum(len(found[info_hash] - expected[info_hash]) for info_hash in expected)
            lost = sum(len(expected[info_hash] - found[info_hash]) for info_hash in expected)
            findings.complaints.append(
                f"after {seconds:g} s {ghosts} peers are there that went, {lost} missing"
            )
            break
        await asyncio.sleep(0.1)
    findings.peers = sum(map(len, found.values()))


async def quiet_store(redis: Any, findings: Findings) -> None:
    """T19, while nobody announces; the global counts may come a second late."""
    end = time.monotonic() + _QUIET_SECONDS
    while True:
        try:
            active = await check_invariants(redis, KEYS)
        except AssertionError as error:
            if time.monotonic() > end:
                findings.complaints.append(f"an invariant is broken: {str(error)[:200]}")
                return
            await asyncio.sleep(0.2)
        else:
            if active != findings.peers:
                findings.complaints.append(f"{active} peers are active, {findings.peers} are in swarms")
            break
    repairs = int(await redis.get(KEYS.stat("repairs")) or 0)
    if repairs:
        findings.complaints.append(f"the sweep had to repair {repairs} times")


async def reaped_wrongly(redis: Any, fleet: Fleet) -> int:
    """Peers that announced all the time, and yet had to join anew."""
    wrong = 0
    for peer in fleet.aboard.values():
        if peer.longest_gap < REAP_SECONDS and await _joined_anew(redis, peer):
            wrong += 1
    return wrong


async def _joined_anew(redis: Any, peer: Peer) -> bool:
    torrent_id = await redis.get(KEYS.info_hash(InfoHash(peer.info_hash)))
    key = KEYS.peer(torrent_id.decode(), PeerId(peer.peer_id))
    first = await redis.hget(key, "first_announce")
    # A clock that was set back meanwhile would have it join earlier than it did.
    return first is not None and not -60 < int(first) - peer.joined_epoch <= 1


def read_logs(scene: Scene, findings: Findings) -> None:
    for post in scene.posts:
        if found := _BLUNDERS.search(post.log):
            line = post.log[max(0, found.start() - 200) : found.end() + 3000]
            findings.complaints.append(f"the log has {found[0]!r}: …{line}…")
