"""Warning messages of accepted announces, which clients show to their users."""

from collections.abc import Callable

from tracker.bittorrent import AnnounceReply, Reply
from tracker.refusals import Refusal
from tracker.store.swarms.codec import Admitted, JoinedWithMultipliers, WithoutPeers, WithoutSlot

WARNINGS = {
    "stranger": "your peer id is in use from another address, so this announce changes nothing",
    "displaced": "another client uses your address and port; yours is not listed until that client leaves",
    "over": "too many peers from your address in this torrent or in total; yours is not listed",
}
"""By outcome: why the peer is not in the swarm, although its reply lists other peers."""
PRIVATE_ADDRESS = "your address is private: peers outside your network cannot reach you"
NEUTRAL = "neutral: neither your upload nor your download counts"
FREELEECH = "freeleech: your download does not count"
NO_PEERS_NOW = "too many torrents started or announces sent at once: no peers now, ask again later"
NO_SLOT = "you are downloading as many torrents as you may: no peers for this one until you finish or stop one"
UNKNOWN_PASSKEY = "unknown passkey: this announce is anonymous; download the .torrent file again"


def warning_of(outcome: Admitted) -> str:
    """The warning of an outcome of a class of its own."""
    if isinstance(outcome, WithoutPeers):
        return NO_PEERS_NOW
    if isinstance(outcome, WithoutSlot):
        return NO_SLOT
    if not isinstance(outcome, JoinedWithMultipliers):
        return UNKNOWN_PASSKEY
    up, down = outcome.upload_multiplier, outcome.download_multiplier
    if up == down == "0":
        return NEUTRAL
    parts = [FREELEECH] if down == "0" else []
    parts += [f"your download counts {down} times"] if down not in ("0", "1") else []
    parts += [f"your upload counts {up} times"] if up != "1" else []
    return "; ".join(parts)


def answer_with_warning(warning: str, answer: Callable[[Reply | Refusal], None], reply: Reply | Refusal) -> None:
    """Adds a warning to the reply of an admitted announce."""
    assert isinstance(reply, tuple)
    found = AnnounceReply(*reply)
    answer(found._replace(warning="; ".join(filter(None, (warning, found.warning)))))
