"""The nodes of a cluster: what they say of each other, and whether most of the primaries can decide."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracker.store.client.url import Address

NO_MAJORITY = "no majority"
_WORDS = 8
"""Of a node without slots."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as most of the others know it, and what it says itself."""

    node_id: str
    address: Address
    primary_id: str
    """Of a replica; empty for a primary."""
    failing: bool
    """Whether others get no reply from it."""
    slots: tuple[tuple[int, int], ...]
    """First and last one of each range."""
    answers: bool = False
    offset: int = 0
    """How much of the stream of changes it has (bytes)."""
    linked: bool = False
    """Whether a replica is connected to its primary."""


def parse_nodes(reply: str, asked_host: str) -> list[NodeState]:
    """The reply to CLUSTER NODES. A node that does not know its own host leaves it out: it is the one asked."""
    found = []
    for words in map(str.split, reply.splitlines()):
        if len(words) < _WORDS:  # no line of this version's format
            continue
        node_id, place, text, primary, _, _, _, _, *slots = words
        flags = text.split(",")
        if "handshake" in flags or "noaddr" in flags:
            continue
        host, _, port = place.partition("@")[0].rpartition(":")
        ranges = [each.partition("-") for each in slots if not each.startswith("[")]
        found.append(
            NodeState(
                node_id,
                (host.strip("[]") or asked_host, int(port)),
                "" if primary == "-" else primary,
                "fail" in flags or "fail?" in flags,
                tuple((int(first), int(last or first)) for first, _, last in ranges),
            )
        )
    return found


def no_majority(views: Iterable[Sequence[NodeState]]) -> str:
    """Why no node serves, if no node that answers has a majority of the primaries; else empty. ``views``: what each of
    them says of all."""
    counts = []
    for view in views:
        primaries = [node for node in view if node.slots and not node.primary_id]  # these decide with each other
        counts.append((sum(not node.failing for node in primaries), len(primaries)))
    answering, primaries_known = max(counts, default=(0, 0))
    if 2 * answering > primaries_known or not primaries_known:
        return ""
    return f"{NO_MAJORITY}: {answering} of {primaries_known} primaries answer{'s' * (answering == 1)}"
