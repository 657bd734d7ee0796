"""Packets of the UDP tracker protocol, byte by byte (BEP 15, BEP 41)."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Announce, AnnounceReply, Digits, Event, InfoHash, PeerId, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.refusals import Refusal
from tracker.wire import udp

HASH = InfoHash(bytes(range(20)))
PEER = PeerId(b"-SK0001-abcdefghijkl")
STOPPED = Announce(
    HASH, PEER, port=0, bytes_left=Digits(b"1"), event=Event.STOPPED, peers_wanted=50, key=b"\xde\xad\xbe\xef\xff"
)
ids = st.integers(0, 2**32 - 1)


class TestRequests:
    def test_a_connect_request_has_the_protocol_id(self) -> None:
        assert udp.encode_connect_request(0x01020304) == bytes.fromhex("0000041727101980 00000000 01020304")

    def test_an_announce_request_has_every_field(self) -> None:
        packet = udp.encode_announce_request(0xA1A2A3A4A5A6A7A8, 7, STOPPED)
        assert packet == (
            bytes.fromhex("a1a2a3a4a5a6a7a8 00000001 00000007")
            + HASH
            + PEER
            + bytes.fromhex("0000000000000000 0000000000000001 0000000000000000")  # downloaded, left, uploaded
            + bytes.fromhex("00000003 00000000 deadbeef 00000032 0000")  # stopped, address, key, peers wanted, port
        )
        assert len(packet) == 98

    @pytest.mark.parametrize(
        ("event", "code"), [("", 0), ("completed", 1), ("started", 2), ("stopped", 3), ("paused", 0)]
    )
    def test_each_event_has_its_number(self, event: str, code: int) -> None:
        packet = udp.encode_announce_request(0, 0, STOPPED._replace(event=Event(event)))
        assert int.from_bytes(packet[80:84], "big") == code

    def test_missing_fields_have_their_defaults(self) -> None:
        packet = udp.encode_announce_request(0, 0, Announce(HASH, PEER, port=6881))
        assert struct.unpack(">IIiH", packet[84:]) == (0, 0, -1, 6881)
        assert int.from_bytes(packet[64:72], "big") > 0

    @pytest.mark.parametrize(
        ("target", "options"),
        [
            ("", b""),
            ("/", b""),
            ("/announce", b"\x02\x09/announce\x00"),
            ("/a?k=1", b"\x02\x06/a?k=1\x00"),
            ("/" + "x" * 255, b"\x02\xff/" + b"x" * 254 + b"\x02\x01x\x00"),
        ],
    )
    def test_path_and_query_follow_in_options_of_255_bytes(self, target: str, options: bytes) -> None:
        """BEP 41."""
        assert udp.encode_announce_request(0, 0, STOPPED, target)[98:] == options

    def test_a_scrape_request_lists_the_hashes(self) -> None:
        packet = udp.encode_scrape_request(1, 2, [HASH, InfoHash(b"x" * 20)])
        assert packet == bytes.fromhex("0000000000000001 00000002 00000002") + HASH + b"x" * 20

    @pytest.mark.parametrize("count", [0, udp.MAX_SCRAPE + 1])
    def test_a_scrape_of_no_or_too_many_torrents_is_an_error(self, count: int) -> None:
        with pytest.raises(ValueError, match="1 to 70"):
            udp.encode_scrape_request(1, 2, [HASH] * count)


class TestReplies:
    def test_a_connect_reply_has_the_connection_id(self) -> None:
        packet = bytes.fromhex("00000000 00000007 a1a2a3a4a5a6a7a8")
        assert udp.reply_transaction(packet) == 7
        assert udp.parse_connect_reply(packet, 7) == 0xA1A2A3A4A5A6A7A8
        assert udp.parse_connect_reply(packet + b"more", 7) == 0xA1A2A3A4A5A6A7A8

    def test_an_announce_reply_has_counts_and_peers(self) -> None:
        packet = bytes.fromhex("00000001 00000007 00000708 00000002 00000003 0102030400500506070800ff")
        reply = udp.parse_announce_reply(packet, 7, ipv6=False, max_peers=50)
        assert (reply.interval_seconds, reply.leechers, reply.seeders) == (1800, 2, 3)
        assert reply.peers == bytes.fromhex("0102030400500506070800ff")
        assert not reply.peers6

    def test_peers_over_ipv6_are_18_bytes(self) -> None:
        peer = bytes(range(18))
        packet = bytes.fromhex("00000001 00000007 00000708 00000002 00000003") + peer + b"cut"
        reply = udp.parse_announce_reply(packet, 7, ipv6=True, max_peers=50)
        assert (reply.peers, reply.peers6) == (b"", peer)

    def test_peers_beyond_the_maximum_are_ignored(self) -> None:
        packet = bytes.fromhex("00000001 00000007 00000708 00000002 00000003") + bytes(600)
        assert len(udp.parse_announce_reply(packet, 7, ipv6=False, max_peers=3).peers) == 18

    def test_a_scrape_reply_has_counts_in_the_order_of_the_request(self) -> None:
        packet = bytes.fromhex("00000002 00000007 00000001 00000002 00000003 00000004 00000005 00000006 ffff")
        files = (ScrapeFile(seeders=1, completions=2, leechers=3), ScrapeFile(seeders=4, completions=5, leechers=6))
        assert udp.parse_scrape_reply(packet, 7, 2) == files
        assert udp.parse_scrape_reply(packet, 7, 1) == files[:1]
        assert udp.parse_scrape_reply(packet, 7, 70) == files, "a tracker with a limit covers the first torrents"

    @pytest.mark.parametrize("text", ["", "no such torrent", "x" * 1000])
    def test_an_error_reply_is_a_refusal(self, text: str) -> None:
        packet = bytes.fromhex("00000003 00000007") + text.encode()
        for parse in (
            lambda: udp.parse_connect_reply(packet, 7),
            lambda: udp.parse_announce_reply(packet, 7, ipv6=False, max_peers=1),
            lambda: udp.parse_scrape_reply(packet, 7, 1),
        ):
            with pytest.raises(TrackerRefusal) as refused:
                parse()
            assert refused.value.text == text[:200]

    @pytest.mark.parametrize(
        ("packet", "complaint"),
        [
            ("", "wrong transaction"),
            ("00000002", "wrong transaction"),
            ("00000002 00000008 000000010000000200000003", "wrong transaction"),
            ("00000001 00000007 000000010000000200000003", "wrong action"),
            ("00000009 00000007 000000010000000200000003", "wrong action"),
            ("00000002 00000007", "too short"),
            ("00000002 00000007 0000000100000002000000", "too short"),
            ("00000002 00000007 800000000000000200000003", "out of range"),
            ("00000002 00000007 00000000ffffffff00000003", "out of range"),
        ],
    )
    def test_invalid_packets_raise_a_reply_error(self, packet: str, complaint: str) -> None:
        with pytest.raises(TrackerReplyError, match=complaint):
            udp.parse_scrape_reply(bytes.fromhex(packet), 7, 2)

    @given(st.binary(max_size=200), ids)
    def test_parsing_raises_the_two_errors_only(self, packet: bytes, transaction_id: int) -> None:
        head = transaction_id.to_bytes(4, "big")
        for candidate in (packet, *(bytes((0, 0, 0, action)) + head + packet for action in range(5))):
            for parse in (
                lambda it: udp.parse_connect_reply(it, transaction_id),
                lambda it: udp.parse_announce_reply(it, transaction_id, ipv6=True, max_peers=5),
                lambda it: udp.parse_scrape_reply(it, transaction_id, 9),
            ):
                with contextlib.suppress(TrackerRefusal, TrackerReplyError):
                    parse(candidate)

    @given(ids, st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * 3), min_size=1, max_size=udp.MAX_SCRAPE))
    def test_an_encoded_scrape_reply_parses_to_the_same_counts(
        self, transaction_id: int, counts: list[tuple[int, ...]]
    ) -> None:
        body = b"".join(struct.pack(">III", *each) for each in counts)
        files = udp.parse_scrape_reply(
            struct.pack(">II", udp.SCRAPE, transaction_id) + body, transaction_id, len(counts)
        )
        assert [(file.seeders, file.completions, file.leechers) for file in files] == counts


class TestRoundTrips:
    """What one side encodes, the other one parses."""

    @given(ids, st.integers(0, 2**64 - 1))
    def test_a_connect(self, transaction_id: int, connection_id: int) -> None:
        request = udp.encode_connect_request(transaction_id)
        assert udp.request_kind(request) == "connect"
        reply = udp.encode_connect_reply(request[12:16], connection_id.to_bytes(8, "big"))
        assert udp.parse_connect_reply(reply, transaction_id) == connection_id

    @given(
        st.tuples(*[st.integers(0, 2**53 - 1)] * 3),
        st.sampled_from([Event.UPDATE, Event.COMPLETED, Event.STARTED, Event.STOPPED]),
        st.integers(1, 65535),
        st.one_of(st.none(), st.integers(0, udp.MAX_PEERS)),
        st.binary(max_size=300).filter(lambda raw: raw not in (b"", b"/")),
    )
    def test_an_announce(
        self, counts: tuple[int, ...], event: Event, port: int, wanted: int | None, raw: bytes
    ) -> None:
        uploaded, downloaded, left = (Digits(b"%d" % count) for count in counts)
        sent = Announce(HASH, PEER, port, uploaded, downloaded, left, b"\xca\x29\x8a\x56", event, wanted)
        target = raw.hex()[: udp.MAX_URL_LENGTH]
        packet = udp.encode_announce_request(1, 2, sent, target)
        assert udp.request_kind(packet) == "announce"
        parsed = udp.parse_announce(packet, ipv6=False)
        assert parsed == sent._replace(key=b"CA298A56", compact=True, no_peer_id=True, own_family=True)
        assert udp.parse_options(packet[udp.ANNOUNCE_LENGTH :]) == target.encode()

    @given(ids, st.tuples(*[st.integers(0, 2**31 - 1)] * 3), st.integers(0, udp.MAX_PEERS6), st.booleans())
    def test_a_reply_to_an_announce(
        self, transaction_id: int, counts: tuple[int, int, int], number: int, ipv6: bool
    ) -> None:
        interval, seeders, leechers = counts
        sent = AnnounceReply(interval, 0, seeders, leechers, 0)
        sent = sent._replace(peers6=bytes(18) * number) if ipv6 else sent._replace(peers=bytes(6) * number)
        packet = udp.encode_announce_reply(transaction_id.to_bytes(4, "big"), sent, ipv6=ipv6)
        assert udp.parse_announce_reply(packet, transaction_id, ipv6=ipv6, max_peers=1000) == sent

    @given(
        ids,
        st.dictionaries(
            st.binary(min_size=20, max_size=20).map(InfoHash),
            st.builds(ScrapeFile, *[st.integers(0, 2**31 - 1)] * 3),
            min_size=1,
            max_size=udp.MAX_SCRAPE,
        ),
    )
    def test_a_scrape(self, transaction_id: int, files: dict[InfoHash, ScrapeFile]) -> None:
        request = udp.encode_scrape_request(1, transaction_id, list(files))
        assert udp.request_kind(request) == "scrape"
        hashes = udp.parse_scrape(request)
        assert hashes == tuple(files)
        reply = udp.encode_scrape_reply(request[12:16], hashes, files)
        assert udp.parse_scrape_reply(reply, transaction_id, len(hashes)) == tuple(files.values())

    @given(ids, st.text(min_size=1, max_size=300))
    def test_an_error(self, transaction_id: int, text: str) -> None:
        packet = udp.encode_error(transaction_id.to_bytes(4, "big"), Refusal("denied", text))
        with pytest.raises(TrackerRefusal) as refused:
            udp.parse_connect_reply(packet, transaction_id)
        assert text.startswith(refused.value.text) and len(refused.value.text.encode()) <= 200
