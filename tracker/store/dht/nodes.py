"""What a node of the DHT keeps for its next start, and shows meanwhile. Its table itself is in memory only."""

import re
from dataclasses import dataclass, field
from typing import Any

from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys

LIFETIME_SECONDS = 7 * 86400
LEASE_SECONDS = 60
MAX_NODES = 2000
"""Of each family."""
LENGTHS = {4: 26, 6: 38}
"""Bytes of a packed node, by family."""
_NAME = re.compile(r"[-.0-9A-Za-z]{1,64}", re.ASCII)
_ID = re.compile(rb"[0-9a-f]{40}")


def is_name(name: str) -> bool:
    """Whether a node may have this name: host names do."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class SavedNode:
    """Dictionaries are by family: 4 and 6."""

    ids: dict[int, bytes] = field(default_factory=dict)
    externals: dict[int, str] = field(default_factory=dict)
    nodes: dict[int, bytes] = field(default_factory=dict)
    """Packed."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Times are epoch seconds."""

    hashes: int
    peers: int
    started: int
    last_answer: int | None = None


class DhtNodes:
    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys

    async def lease(self, name: str, token: str, now: int) -> bool:
        """Takes or renews the right to run the node of this name. False where another tracker has it. Raises
        StoreUnavailable."""
        return bool(await self._scripts.dht_lease([name, token, now, now + LEASE_SECONDS]))

    async def release(self, name: str, token: str, now: int) -> None:
        """Raises StoreUnavailable."""
        await self._scripts.dht_lease([name, token, now, ""])

    async def save(self, name: str, saved: SavedNode, figures: NodeFigures, now: int) -> None:
        """Replaces what was saved under this name, except nodes where none are known now. Raises StoreUnavailable."""
        assert is_name(name)
        fields: dict[str, str | int | None] = {
            "hashes": figures.hashes,
            "peers": figures.peers,
            "started": figures.started,
            "saved": now,
            "last_answer": figures.last_answer,
        }
        commands: list[tuple[Any, ...]] = [("SADD", self._keys.dht_nodes(), name)]
        for family, length in LENGTHS.items():
            packed = saved.nodes.get(family, b"")[: MAX_NODES * length]
            id = saved.ids.get(family)
            fields |= {
                f"id{family}": None if id is None else id.hex(),
                f"external{family}": saved.externals.get(family),
                f"nodes{family}": len(packed) // length,
            }
            if packed:
                table = self._keys.dht_table(name, family)
                commands.append(("SET", table, packed, "EX", LIFETIME_SECONDS))
        key = self._keys.dht_node(name)
        pairs = [part for item in fields.items() if item[1] is not None for part in item]
        commands += [("DEL", key), ("HSET", key, *pairs), ("EXPIRE", key, LIFETIME_SECONDS)]
        await self._connection.pipeline(*commands)

    async def names(self) -> list[str]:
        """Of all nodes that used this store, sorted. Raises StoreUnavailable."""
        found = await self._connection.command("SMEMBERS", self._keys.dht_nodes())
        return sorted(text for each in found if is_name(text := each.decode("latin-1")))

    async def figures(self, name: str) -> dict[str, str]:
        """What a node saved about itself; empty where that has expired. Raises StoreUnavailable."""
        flat = await self._connection.command("HGETALL", self._keys.dht_node(name))
        texts = [part.decode("utf-8", "replace") for part in flat]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def load(self, name: str) -> SavedNode:
        """What was saved. Damaged or foreign values are left out. Raises StoreUnavailable."""
        assert is_name(name)
        fields = ("id4", "id6", "external4", "external6")
        known, *tables = await self._connection.pipeline(
            ("HMGET", self._keys.dht_node(name), *fields),
            *(("GET", self._keys.dht_table(name, family)) for family in LENGTHS),
        )
        values = known if isinstance(known, list) else [None] * len(fields)
        return SavedNode(
            ids={
                family: bytes.fromhex(value.decode())
                for family, value in zip(LENGTHS, values[:2], strict=True)
                if value is not None and _ID.fullmatch(value)
            },
            externals={
                family: value.decode()
                for family, value in zip(LENGTHS, values[2:], strict=True)
                if value is not None and value.isascii()
            },
            nodes={
                family: packed[: MAX_NODES * length]
                for (family, length), packed in zip(LENGTHS.items(), tables, strict=True)
                if isinstance(packed, bytes) and packed and len(packed) % length == 0
            },
        )
