"""The simulated peers: the same parameters give the same peers, on every machine.

Peers are spread over torrents by Zipf's law. Each is one client that behaves like libtorrent: the
query strings have its parameters in its order (``numwant`` aside, which is part of the setting).
"""

import hashlib
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from urllib.parse import quote_from_bytes

ZIPF_EXPONENT = 0.8
PEERS_WANTED = 50
SEEDERS_SHARE = 0.5
TORRENT_BYTES = 1_468_006_400
CLIENT_PREFIXES = (
    b"-LT2080-",
    b"-qB4650-",
    b"-TR3000-",
    b"-TR4060-",
    b"-DE203s-",
    b"-UT355W-",
    b"lt0D80-",
    b"A2-1-36-0-",
)
_FIRST_PORT, _PORTS, _PORT_STEP = 1024, 64_512, 7_919  # the step and the count have no common divisor


@dataclass(frozen=True, slots=True)
class Peer:
    """A client in a torrent; ``bytes_left`` is its value in regular announces."""

    info_hash: bytes
    peer_id: bytes
    port: int
    key: str
    bytes_left: int


def info_hash_of(torrent: int) -> bytes:
    return hashlib.sha1(b"torrent %d" % torrent, usedforsecurity=False).digest()


def make_peers(count: int, torrents: int, seed: int = 1) -> list[Peer]:
    """``count`` peers in random order; each torrent has its Zipf share of them, rounded."""
    shuffled = random.Random(seed)
    edges = list(accumulate((rank + 1) ** -ZIPF_EXPONENT for rank in range(torrents)))
    homes = [bisect_left(edges, (n + 0.5) / count * edges[-1]) for n in range(count)]
    peers = [_make_peer(shuffled, torrent, n) for n, torrent in enumerate(homes)]
    shuffled.shuffle(peers)
    return peers


def _make_peer(source: random.Random, torrent: int, n: int) -> Peer:
    # Neighbours in ``n`` share a torrent, so that counting ports by it gives a swarm no port twice
    # (below 64,512 peers): all peers have the loopback address, only the port tells them apart.
    prefix = source.choice(CLIENT_PREFIXES)
    return Peer(
        info_hash=info_hash_of(torrent),
        peer_id=prefix + source.randbytes(20 - len(prefix)),
        port=_FIRST_PORT + n * _PORT_STEP % _PORTS,
        key=f"{source.getrandbits(32):08X}",
        bytes_left=0 if source.random() < SEEDERS_SHARE else source.randrange(1, TORRENT_BYTES),
    )


def announce_target(peer: Peer, event: str = "", peers_wanted: int = PEERS_WANTED) -> str:
    """The request target of one announce, parameters as libtorrent 2.0 sends them."""
    left = 0 if event == "completed" else peer.bytes_left
    return (
        f"/announce?info_hash={quote_from_bytes(peer.info_hash, safe='')}"
        f"&peer_id={quote_from_bytes(peer.peer_id, safe='')}&port={peer.port}"
        f"&uploaded={(TORRENT_BYTES - left) // 2}&downloaded={TORRENT_BYTES - left}&left={left}"
        f"&corrupt=0&key={peer.key}{f'&event={event}' if event else ''}"
        f"&numwant={0 if event == 'stopped' else peers_wanted}"
        f"&compact=1&no_peer_id=1&supportcrypto=1&redundant=0"
    )


def scrape_target(peer: Peer) -> str:
    return f"/scrape?info_hash={quote_from_bytes(peer.info_hash, safe='')}"


@dataclass(frozen=True, slots=True)
class Workload:
    """The peers in the swarms before the first request, and the requests, which are sent in a cycle."""

    present: list[Peer]
    targets: list[str]


def make_workload(active: int, torrents: int, requests: int, seed: int = 1) -> Workload:
    """90 % regular announces, 4 % started, 4 % stopped, 1 % completed, 1 % scrapes.

    The requests form a circle that keeps the number of peers: one that stops was present, one that starts was not.
    It is cut into groups of four requests, each a quarter of the circle after the one before. A churning
    peer starts at the first and stops at the third, and one in four of them completes at the second;
    the group begins at a random quarter, so half of the churning peers are present at the outset.
    ``requests`` is rounded down to a multiple of 100.
    """
    quarter = requests // 100 * 25
    churning = quarter * 4 * 4 // 100
    source = random.Random(seed)
    all_peers = make_peers(active + (churning + 1) // 2, torrents, seed)
    churners, stable = all_peers[:churning], all_peers[churning:]
    regular = _endless(stable, source)
    targets, present = [""] * (quarter * 4), list(stable)
    for n, place in enumerate(source.sample(range(quarter), quarter)):
        turn = n % 4
        if n < churning:
            group = _life(churners[n], regular, completes=n < churning // 4)
            if turn >= 2:  # alive from the third or fourth quarter into the next round
                present.append(churners[n])
        else:
            group = [announce_target(next(regular)) for _ in range(4)]
        for step, target in enumerate(group):
            targets[place + (turn + step) % 4 * quarter] = target
    source.shuffle(present)
    return Workload(present, targets)


def _life(peer: Peer, regular: Iterator[Peer], *, completes: bool) -> list[str]:
    if completes:
        between, after = announce_target(peer, "completed"), scrape_target(peer)
    else:
        between, after = announce_target(next(regular)), announce_target(next(regular))
    return [announce_target(peer, "started"), between, announce_target(peer, "stopped"), after]


def _endless(peers: Sequence[Peer], source: random.Random) -> Iterator[Peer]:
    while True:
        yield from source.sample(peers, len(peers))
