import bencodepy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Address, Announce, AnnounceReply, InfoHash, PeerId, ScrapeFile, ScrapeReply
from tracker.refusals import Refusal
from tracker.wire.endpoint import format_address, split_endpoints
from tracker.wire.http_reply import encode_announce, encode_failure, encode_scrape, encode_scrape_parts

ANNOUNCE = Announce(InfoHash(bytes(20)), PeerId(bytes(20)), 1)
LONG = ANNOUNCE._replace(compact=False)


def long_peers(packed: bytes, size: int, ids: bytes, no_peer_id: bool) -> list[dict[str, object]]:
    peers = []
    for index, (address, port) in enumerate(split_endpoints(packed, size)):
        peer: dict[str, object] = {"ip": format_address(address)}
        if not no_peer_id and (peer_id := ids[index * 20 : index * 20 + 20]):
            peer["peer id"] = peer_id
        peers.append({**peer, "port": port})
    return peers


def as_dictionary(reply: AnnounceReply, compact: bool, no_peer_id: bool) -> dict[str, object]:
    """The reply encoded by bencodepy, which does not sort dictionaries; the keys are in order here."""
    answer: dict[str, object] = {
        "complete": reply.seeders,
        "downloaded": reply.completions,
        "incomplete": reply.leechers,
        "interval": reply.interval_seconds,
        "min interval": reply.min_interval_seconds,
        "peers": reply.peers,
    }
    if not compact:
        answer["peers"] = [
            *long_peers(reply.peers, 6, reply.peer_ids, no_peer_id),
            *long_peers(reply.peers6, 18, reply.peer_ids6, no_peer_id),
        ]
    elif reply.peers6:
        answer["peers6"] = reply.peers6
    if reply.external_address:
        answer["external ip"] = reply.external_address
    if reply.warning:
        answer["warning message"] = reply.warning
    return dict(sorted(answer.items()))


@st.composite
def replies(draw: st.DrawFn) -> AnnounceReply:
    peers, peers6 = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    exactly = [draw(st.binary(min_size=n, max_size=n)) for n in (6 * peers, 18 * peers6, 20 * peers, 20 * peers6)]
    count = st.integers(0, 2**64)
    address = draw(st.none() | st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16))
    with_ids = draw(st.booleans())
    return AnnounceReply(
        *(draw(count), draw(count), draw(count), draw(count), draw(count)),
        peers=exactly[0],
        peers6=exactly[1],
        peer_ids=exactly[2] if with_ids else b"",
        peer_ids6=exactly[3] if with_ids else b"",
        external_address=Address(address) if address else None,
        warning=draw(st.none() | st.text()),
    )


class TestEncoding:
    @given(replies(), st.booleans(), st.booleans())
    def test_a_reply_equals_bencodepys_encoding(self, reply: AnnounceReply, compact: bool, no_ids: bool) -> None:
        expected = bencodepy.encode(as_dictionary(reply, compact, no_ids))
        assert encode_announce(reply, ANNOUNCE._replace(compact=compact, no_peer_id=no_ids)) == expected

    def test_a_reply_without_peers_has_an_empty_peers_key(self) -> None:
        """T1"""
        assert encode_announce(AnnounceReply(1800, 900, 1, 0, 3), ANNOUNCE) == (
            b"d8:completei1e10:downloadedi3e10:incompletei0e8:intervali1800e12:min intervali900e5:peers0:e"
        )
        assert b"5:peersle" in encode_announce(AnnounceReply(1800, 900, 1, 0, 3), LONG)

    def test_a_reply_with_every_optional_key(self) -> None:
        """T1: IPv6 peers are in peers6, and the keys are in order (BEP 7, 23, 24)."""
        reply = AnnounceReply(
            1800,
            900,
            1,
            2,
            3,
            peers=b"\1\2\3\4\x1a\xe1",
            peers6=bytes(15) + b"\1\x1a\xe1",
            external_address=Address(b"\x08\x08\x04\x04"),
            warning="größer",
        )
        assert encode_announce(reply, ANNOUNCE) == (
            b"d8:completei1e10:downloadedi3e11:external ip4:\x08\x08\x04\x0410:incompletei2e"
            b"8:intervali1800e12:min intervali900e5:peers6:\1\2\3\4\x1a\xe1"
            b"6:peers618:" + bytes(15) + b"\1\x1a\xe1" + b"15:warning message8:gr\xc3\xb6\xc3\x9fere"
        )

    def test_the_long_form_lists_the_peers_of_both_families(self) -> None:
        reply = AnnounceReply(
            *(1, 1, 0, 0, 0),
            peers=b"\1\2\3\4\x1a\xe1",
            peers6=bytes(15) + b"\1\x1a\xe1",
            peer_ids=b"a" * 20,
            peer_ids6=b"b" * 20,
        )
        encoded = encode_announce(reply, LONG)
        assert encoded.endswith(
            b"5:peersld2:ip7:1.2.3.47:peer id20:" + b"a" * 20 + b"4:porti6881ee"
            b"d2:ip3:::17:peer id20:" + b"b" * 20 + b"4:porti6881eeee"
        )
        assert b"peer id" not in encode_announce(reply, LONG._replace(no_peer_id=True))

    def test_a_warning_with_an_unpaired_surrogate_is_sent(self) -> None:
        assert encode_announce(AnnounceReply(1, 1, 0, 0, 0, warning="a\udc80"), ANNOUNCE).endswith(b"2:a?e")

    def test_a_scrape_reply_has_four_counts_per_torrent(self) -> None:
        """T18: raw hashes in order, and zeros for unknown counts (BEP 48, BEP 21)."""
        files = {InfoHash(b"z" * 20): ScrapeFile(1, 2, 3, 4), InfoHash(b"\xff" * 20): ScrapeFile()}
        files[InfoHash(bytes(20))] = ScrapeFile(seeders=7)
        file = b"d8:completei%de10:downloadedi%de11:downloadersi%de10:incompletei%dee"
        assert encode_scrape(ScrapeReply(files, 600)) == (
            b"d5:filesd20:%b%b20:%b%b20:%b%be5:flagsd20:min_request_intervali600eee"
            % (
                *(bytes(20), file % (7, 0, 0, 0)),
                *(b"z" * 20, file % (1, 3, 4, 2)),
                *(b"\xff" * 20, file % (0, 0, 0, 0)),
            )
        )
        assert encode_scrape(ScrapeReply()) == b"d5:filesde5:flagsd20:min_request_intervali900eee"

    @pytest.mark.parametrize("prefix", [b"", b"x" * 17], ids=["spread", "of one beginning"])
    def test_a_large_scrape_reply_has_small_parts_in_order(self, prefix: bytes) -> None:
        """No part is long, whatever info hashes are registered."""
        files = {
            InfoHash((prefix + (n * 2654435761 % 2**24).to_bytes(3, "big") + bytes(20))[:20]): ScrapeFile(n)
            for n in range(20_000)
        }
        parts = list(encode_scrape_parts(ScrapeReply(files)))
        assert max(map(len, parts)) < 4097 * 100
        decoded = bencodepy.decode(b"".join(parts))
        assert list(decoded[b"files"]) == sorted(files)
        assert all(decoded[b"files"][info_hash][b"complete"] == file.seeders for info_hash, file in files.items())

    def test_a_failure_has_a_reason_and_intervals(self) -> None:
        """BEP 31, and the intervals that libtorrent obeys instead."""
        for_a_while = encode_failure(Refusal("busy"), 300, 60)
        text = b"43:the tracker is busy; your client will retry"
        rest = b"8:intervali300e12:min intervali60e8:retry ini5ee"
        assert for_a_while == b"d14:failure reason" + text + rest
        for_ever = encode_failure(Refusal("denied"), 300, 60)
        assert for_ever.endswith(b"8:retry in5:nevere")
