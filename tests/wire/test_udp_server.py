"""The tracker's side of the UDP protocol, byte by byte (BEP 15, BEP 41)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import MAX_COUNT, Announce, AnnounceReply, Digits, Event, InfoHash, PeerId, ScrapeFile
from tracker.refusals import Refusal
from tracker.wire import udp

CONNECT = bytes.fromhex("00000417271019800000000011223344")
HASH = InfoHash(bytes(range(1, 21)))
PEER = PeerId(b"-qB5020-abcdefghijkl")
ANNOUNCE = bytes.fromhex(
    "8043820f1e3884dc 00000001 55667788 0102030405060708090a0b0c0d0e0f1011121314"
    "2d7142353032302d6162636465666768696a6b6c 000000000000001e 00000000000003e8 0000000000000046"
    "00000002 00000000 ca298a56 000000c8 1ae1 02092f616e6e6f756e6365 00"
)
SCRAPE = bytes.fromhex("8043820f1e3884dc0000000299aabbcc") + HASH + bytes(20)
REPLY = AnnounceReply(1800, 900, seeders=4, leechers=3, completions=17)
TRANSACTION = bytes.fromhex("55667788")


def changed(offset: int, data: bytes) -> bytes:
    return ANNOUNCE[:offset] + data + ANNOUNCE[offset + len(data) :]


class TestKinds:
    @pytest.mark.parametrize(
        ("packet", "kind"),
        [
            (CONNECT, "connect"),
            (CONNECT + b"extension", "connect"),
            (CONNECT[:15], "short"),
            (b"\x01" + CONNECT[1:], "magic"),
            (ANNOUNCE, "announce"),
            (ANNOUNCE[:98], "announce"),
            (ANNOUNCE[:97], "short"),
            (SCRAPE, "scrape"),
            (SCRAPE[:36], "scrape"),
            (SCRAPE[:35], "short"),
            (CONNECT[:11] + b"\3" + CONNECT[12:], "action"),
            (ANNOUNCE[:11] + b"\4" + ANNOUNCE[12:], "action"),
            (b"", "short"),
        ],
    )
    def test_a_packet_has_a_kind_or_a_reason_to_ignore_it(self, packet: bytes, kind: str) -> None:
        assert udp.request_kind(packet) == kind

    def test_the_requests_of_the_client_side_are_recognised(self) -> None:
        assert udp.request_kind(udp.encode_connect_request(7)) == "connect"
        assert udp.request_kind(udp.encode_announce_request(1, 2, Announce(HASH, PEER, 1))) == "announce"
        assert udp.request_kind(udp.encode_scrape_request(1, 2, [HASH])) == "scrape"


class TestAnnounces:
    def test_an_announce_has_these_fields(self) -> None:
        assert len(ANNOUNCE) == 110
        assert udp.parse_announce(ANNOUNCE, ipv6=False) == Announce(
            HASH,
            PEER,
            6881,
            uploaded=Digits(b"70"),
            downloaded=Digits(b"30"),
            bytes_left=Digits(b"1000"),
            event=Event.STARTED,
            peers_wanted=200,
            key=b"CA298A56",
            no_peer_id=True,
            own_family=True,
        )

    @pytest.mark.parametrize(
        ("number", "event"),
        [(0, ""), (1, "completed"), (2, "started"), (3, "stopped"), (4, "paused"), (5, ""), (2**32 - 1, "")],
    )
    def test_each_event_has_its_number(self, number: int, event: str) -> None:
        packet = changed(80, struct.pack(">I", number))
        assert udp.parse_announce(packet, ipv6=False).event == event

    @pytest.mark.parametrize(
        ("wanted", "ipv6", "parsed"),
        [
            (-1, False, None),
            (-(2**31), False, None),
            (0, False, 0),
            (5, True, 5),
            (2**31 - 1, False, 202),
            (200, True, 67),
        ],
    )
    def test_peers_wanted_are_at_most_those_that_fit(self, wanted: int, ipv6: bool, parsed: int | None) -> None:
        packet = changed(92, struct.pack(">i", wanted))
        assert udp.parse_announce(packet, ipv6=ipv6).peers_wanted == parsed

    def test_the_key_is_written_as_in_http(self) -> None:
        assert udp.parse_announce(changed(88, b"\0\0\x0a\x0b"), ipv6=False).key == b"00000A0B"

    def test_the_stated_address_is_ignored(self) -> None:
        packet = changed(84, b"\x01\x02\x03\x04")
        assert udp.parse_announce(packet, ipv6=False) == udp.parse_announce(ANNOUNCE, ipv6=False)

    @given(st.binary(min_size=82, max_size=200), st.booleans())
    def test_any_bytes_are_an_announce_or_a_refusal(self, fields: bytes, ipv6: bool) -> None:
        try:
            announce = udp.parse_announce(ANNOUNCE[:16] + fields, ipv6=ipv6)
        except Refusal:
            return
        assert 0 <= int(announce.uploaded) <= MAX_COUNT and 0 <= int(announce.downloaded) <= MAX_COUNT
        assert announce.peers_wanted is None or 0 <= announce.peers_wanted <= (67 if ipv6 else 202)


class TestOptions:
    URL = bytes.fromhex("020c") + b"/dir?a=b&c=d"

    @pytest.mark.parametrize(
        ("options", "url"),
        [
            (b"", b""),
            (URL, b"/dir?a=b&c=d"),
            (URL + b"\1\1\0", b"/dir?a=b&c=d"),
            (b"\2\0", b""),
            (b"\1\1" + URL, b"/dir?a=b&c=d"),
            (b"\0" + URL, b""),
            (b"\x07\x03abc" + URL, b"/dir?a=b&c=d"),
            (b"\x07\0" + URL, b"/dir?a=b&c=d"),
            (b"\2\3/di\2\1r", b"/dir"),
            (URL + b"\2\xffrest", b"/dir?a=b&c=d"),
            (URL + b"\2", b"/dir?a=b&c=d"),
            (URL + b"\x09", b"/dir?a=b&c=d"),
            (b"\0\0", b""),
            ((b"\2\xff" + b"x" * 255) * 9, b"x" * 512),
        ],
    )
    def test_options_have_this_url(self, options: bytes, url: bytes) -> None:
        assert udp.parse_options(options) == url

    @given(st.binary(max_size=300))
    def test_any_bytes_are_options(self, options: bytes) -> None:
        assert len(udp.parse_options(options)) <= udp.MAX_URL_LENGTH

    @given(st.text("abc/?&=", max_size=600))
    def test_the_url_of_the_client_side_is_read_back(self, path: str) -> None:
        packet = udp.encode_announce_request(1, 2, Announce(HASH, PEER, 1), "/" + path)
        expected = ("/" + path).encode()[:512] if path else b""
        assert udp.parse_options(packet[98:]) == expected


class TestScrapes:
    def test_a_scrape_lists_its_hashes_in_order(self) -> None:
        assert udp.parse_scrape(SCRAPE) == (HASH, bytes(20))
        assert udp.parse_scrape(SCRAPE + b"half") == (HASH, bytes(20))

    def test_hashes_beyond_the_maximum_are_read(self) -> None:
        """So that the front end can refuse the scrape."""
        packet = SCRAPE[:16] + b"".join(bytes((n,)) * 20 for n in range(100))
        assert udp.parse_scrape(packet) == tuple(bytes((n,)) * 20 for n in range(100))


class TestReplies:
    def test_a_connect_reply_has_16_bytes(self) -> None:
        reply = udp.encode_connect_reply(CONNECT[12:], bytes.fromhex("8043820f1e3884dc"))
        assert reply.hex() == "00000000112233448043820f1e3884dc"
        assert udp.parse_connect_reply(reply, 0x11223344) == 0x8043820F1E3884DC

    def test_an_announce_reply_has_leechers_before_seeders(self) -> None:
        reply = REPLY._replace(peers=bytes.fromhex("c63364011ae1c6336402c8d5"))
        packet = udp.encode_announce_reply(TRANSACTION, reply, ipv6=False)
        assert packet.hex() == "000000015566778800000708" + "0000000300000004" + "c63364011ae1c6336402c8d5"

    @pytest.mark.parametrize(("ipv6", "length"), [(False, 20 + 202 * 6), (True, 20 + 67 * 18)])
    def test_a_reply_has_peers_of_one_family_and_at_most_1232_bytes(self, ipv6: bool, length: int) -> None:
        reply = REPLY._replace(peers=b"\x04" * 6 * 500, peers6=b"\x06" * 18 * 500)
        packet = udp.encode_announce_reply(TRANSACTION, reply, ipv6=ipv6)
        assert len(packet) == length <= udp.MAX_REPLY_LENGTH
        assert set(packet[20:]) == {6 if ipv6 else 4}

    def test_a_scrape_reply_has_an_entry_for_each_hash_in_order(self) -> None:
        files = {HASH: ScrapeFile(seeders=4, leechers=3, completions=17)}
        packet = udp.encode_scrape_reply(bytes.fromhex("99aabbcc"), udp.parse_scrape(SCRAPE), files)
        assert packet.hex() == "0000000299aabbcc" + "000000040000001100000003" + "00" * 12

    def test_the_largest_scrape_reply_fits(self) -> None:
        packet = udp.encode_scrape_reply(TRANSACTION, [HASH] * udp.MAX_SCRAPE_HASHES, {})
        assert len(packet) <= udp.MAX_REPLY_LENGTH

    def test_counts_stay_positive_for_clients_that_read_them_as_signed(self) -> None:
        reply = REPLY._replace(seeders=2**31, leechers=2**40)
        packet = udp.encode_announce_reply(TRANSACTION, reply, ipv6=False)
        assert udp.parse_announce_reply(packet, 0x55667788, ipv6=False, max_peers=1).seeders == 2**31 - 1
        packet = udp.encode_scrape_reply(TRANSACTION, [HASH], {HASH: ScrapeFile(completions=2**53)})
        assert udp.parse_scrape_reply(packet, 0x55667788, 1)[0].completions == 2**31 - 1

    def test_an_error_has_its_text(self) -> None:
        packet = udp.encode_error(TRANSACTION, Refusal("connection id expired"))
        assert packet.hex() == "0000000355667788636f6e6e656374696f6e2069642065787069726564"

    @pytest.mark.parametrize("text", ["x" * 300, "ä" * 150, "x" + "€" * 100])
    def test_a_long_text_is_cut_at_a_character(self, text: str) -> None:
        packet = udp.encode_error(TRANSACTION, Refusal("denied", text))
        assert 195 < len(packet[8:]) <= 200
        assert text.startswith(packet[8:].decode())

    @given(st.integers(0, 2**32 - 1), st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * 3), min_size=1, max_size=70))
    def test_the_client_side_reads_scrape_replies_back(
        self, transaction_id: int, counts: list[tuple[int, int, int]]
    ) -> None:
        hashes = [InfoHash(number.to_bytes(20, "big")) for number in range(len(counts))]
        files = {
            info_hash: ScrapeFile(seeders=s, completions=c, leechers=le)
            for info_hash, (s, c, le) in zip(hashes, counts, strict=True)
        }
        packet = udp.encode_scrape_reply(transaction_id.to_bytes(4, "big"), hashes, files)
        assert udp.parse_scrape_reply(packet, transaction_id, len(hashes)) == tuple(files.values())
