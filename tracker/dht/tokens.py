"""Tokens of announces: proof that a node receives at the address from which it announces (BEP 5).

Nothing is stored for them. A token holds for one address and one torrent, for 5 to 10 minutes. It does not hold the
port, because address translation changes it.
"""

from hashlib import blake2s
from hmac import compare_digest

from tracker.bittorrent import Address, InfoHash

SLOT_SECONDS = 300
_LENGTH = 8


class AnnounceTokens:
    def __init__(self, secret: bytes) -> None:
        """``secret``: 32 random bytes, new at each start."""
        self._secret = secret

    def issue(self, address: Address, info_hash: InfoHash, now: float) -> bytes:
        return self._token(address, info_hash, int(now // SLOT_SECONDS))

    def accepts(self, token: bytes, address: Address, info_hash: InfoHash, now: float) -> bool:
        slot = int(now // SLOT_SECONDS)
        return any(compare_digest(token, self._token(address, info_hash, each)) for each in (slot, slot - 1))

    def _token(self, address: Address, info_hash: InfoHash, slot: int) -> bytes:
        message = slot.to_bytes(8, "big", signed=True) + address + info_hash
        return blake2s(message, key=self._secret, digest_size=_LENGTH, person=b"dhttoken").digest()
