"""Connection ids of the UDP tracker protocol (BEP 15), and tokens of the DHT's announces (BEP 5): they prove that a
sender receives at its address.

An id holds a slot of time, and a hash of the slot and the address, keyed by the secret in the store. So every process
and host on one store accepts the ids of the others, also after a restart. An id is valid in its slot and in the next
one, 5 to 10 minutes (BEP 15: at least 2; some clients use one for more than five). The slot after the current one is
accepted too, because the clocks of hosts differ.
"""

import hashlib
from hmac import compare_digest

SLOT_SECONDS = 300
CONNECTION_ID_LENGTH = 8

_MARK = 0x80
"""The highest bit of each id. Clients treat 0 as no id, and the protocol id of a connect request begins with 0."""
_SLOTS = 0x80
"""The number of slots that the other bits of the first byte tell apart."""
_HASH_LENGTH = CONNECTION_ID_LENGTH - 1


class ConnectionIds:
    """``secret`` is 32 bytes: for connection ids those that all trackers on one store share. An id is one byte longer
    than its hash. Tokens may have longer hashes than connection ids."""

    def __init__(self, secret: bytes, hash_length: int = _HASH_LENGTH) -> None:
        self._keyed = hashlib.blake2b(digest_size=hash_length, key=secret[:64], person=b"udp-connection")
        self._begin = self._end = 0.0
        self._first = _MARK
        """First byte of the ids of the current slot, which is from ``_begin`` to ``_end`` (epoch seconds)."""
        self._accepted: dict[int, hashlib.blake2b] = {}
        """First byte -> the hash of the slot, for the slots whose ids are valid now. Computed once per slot."""

    def issue(self, address: bytes, now: float) -> bytes:
        """The id for ``address`` (packed, without its port: NATs change ports); ``now`` is seconds, not below 0. A
        token of the DHT holds for one torrent, whose info hash follows the address."""
        if not self._begin <= now < self._end:
            self._enter_slot(now)
        keyed = self._accepted[self._first].copy()
        keyed.update(address)
        return bytes((self._first,)) + keyed.digest()

    def is_valid(self, connection_id: bytes, address: bytes, now: float) -> bool:
        """Whether this tracker, or another on the same store, issued the id to ``address`` recently."""
        if not self._begin <= now < self._end:
            self._enter_slot(now)
        keyed = self._accepted.get(connection_id[0])
        if keyed is None:
            return False
        keyed = keyed.copy()
        keyed.update(address)
        return compare_digest(connection_id[1:], keyed.digest())

    def _enter_slot(self, now: float) -> None:
        current = int(now) // SLOT_SECONDS
        self._begin, self._end = current * SLOT_SECONDS, (current + 1) * SLOT_SECONDS
        self._first, self._accepted = _MARK | current % _SLOTS, {}
        for slot in range(max(current - 1, 0), current + 2):
            keyed = self._keyed.copy()
            keyed.update(slot.to_bytes(6, "big"))
            self._accepted[_MARK | slot % _SLOTS] = keyed
