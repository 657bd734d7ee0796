"""Entries by their distance from this node's id, as Kademlia keeps them: node tables, and the hashes announced to us.
The bucket of an entry is the number of leading bits that its id shares with our own. A bucket holds ``capacity``
entries, or up to twice as many where the others are nearer: the ``capacity`` entries nearest to us are always kept."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, TypeVar

from tracker.dht.node_id import ID_BITS, shared_bits

T = TypeVar("T")


@dataclass(eq=False)
class Buckets(Generic[T]):
    """``added`` - ``dropped`` is the number of entries, after any sequence of calls. ``on_drop`` is called with each
    dropped value, but those for which ``rebase`` has no room."""

    own: int
    capacity: int
    _: KW_ONLY
    max_entries: int | None = None
    on_drop: Callable[[T], None] = lambda _: None
    added: int = 0
    dropped: int = 0
    _buckets: list[dict[int, T]] = field(default_factory=lambda: [{} for _ in range(ID_BITS + 1)])
    """By the shared bits. The last one, of our own id, is always empty."""

    def __len__(self) -> int:
        return self.added - self.dropped

    def __iter__(self) -> Iterator[T]:
        for bucket in self._buckets:
            yield from bucket.values()

    def __contains__(self, key: int) -> bool:
        return key in self.bucket(key)

    def items(self) -> Iterator[tuple[int, T]]:
        for bucket in self._buckets:
            yield from bucket.items()

    def get(self, key: int) -> T | None:
        return self.bucket(key).get(key)

    def bucket(self, key: int) -> dict[int, T]:
        """The bucket of an id, not to be changed."""
        return self._buckets[shared_bits(key ^ self.own)]

    def sizes(self) -> list[int]:
        """The number of entries of each bucket: 160 numbers."""
        return [len(bucket) for bucket in self._buckets[:ID_BITS]]

    def has_room(self, key: int) -> bool:
        """Whether ``put`` accepts this key."""
        if key == self.own:
            return False
        bucket = self.bucket(key)
        if key in bucket:
            return True
        if self.max_entries is not None and len(self) >= self.max_entries:
            return key ^ self.own < self._farthest() ^ self.own and self._bucket_takes(key, bucket)
        return self._bucket_takes(key, bucket)

    def put(self, key: int, value: T) -> bool:
        """Returns False where there is no room. Replaces the value of a known key. A new one may take the place of the
        farthest of its bucket, or of all where the total is bounded."""
        if not self.has_room(key):
            return False
        bucket = self.bucket(key)
        if key not in bucket:
            if len(bucket) >= 2 * self.capacity:
                self.drop(max(bucket, key=self.own.__xor__))
            elif self.max_entries is not None and len(self) >= self.max_entries:
                self.drop(self._farthest())
            self.added += 1
        bucket[key] = value
        return True

    def drop(self, key: int) -> T | None:
        """Returns the value, or ``None`` for an unknown key."""
        if key not in self:
            return None
        self.dropped += 1
        value = self.bucket(key).pop(key)
        self.on_drop(value)
        return value

    def rebase(self, own: int) -> None:
        """Files all entries by their distance from another id of ours. Those without room there are dropped."""
        entries = list(self.items())
        added, self.own, self.added, self.dropped = self.added, own, 0, 0
        self._buckets = [{} for _ in self._buckets]
        for key, value in sorted(entries, key=lambda item: item[0] ^ own):
            self.put(key, value)
        self.added, self.dropped = added, added - len(self)

    def nearest(self, target: int) -> Iterator[T]:
        """All entries, those nearest to ``target`` first. Not to be changed meanwhile."""
        for group in self._groups_by_distance(target):
            # The distance gives the key back, so that plain numbers are sorted.
            for distance in sorted([key ^ target for key in group]):
                yield group[distance ^ target]

    def _groups_by_distance(self, target: int) -> Iterator[dict[int, T]]:
        """Groups of entries, each of which is nearer to ``target`` than all later groups. The bucket of the target is
        the nearest. All deeper ones differ from the target in the same first bit, and are one group. Then follow the
        shallower ones."""
        buckets = self._buckets
        index = shared_bits(target ^ self.own)
        yield buckets[index]
        deeper: dict[int, T] = {}
        for bucket in buckets[index + 1 :]:
            if bucket:
                deeper |= bucket
        yield deeper
        yield from reversed(buckets[:index])

    def _bucket_takes(self, key: int, bucket: dict[int, T]) -> bool:
        if len(bucket) < self.capacity:
            return True
        own, distance = self.own, key ^ self.own
        nearer = sum(map(len, self._buckets[shared_bits(distance) + 1 :]))
        return nearer + sum(each ^ own < distance for each in bucket) < self.capacity

    def _farthest(self) -> int:
        """The key farthest from us. Not for an empty structure."""
        bucket = next(filter(None, self._buckets))
        return max(bucket, key=self.own.__xor__)
