"""HTTP replies of other trackers, and of servers that are none."""

import contextlib
import time
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

import pytest
from bencodepy import encode as bencode
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Announce, AnnounceReply, Digits, Event, InfoHash, PeerId, ScrapeFile
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.refusals import Refusal
from tracker.wire import http_reply, http_request
from tracker.wire.http_request import parse_announce, parse_scrape

HASH, OTHER = InfoHash(bytes(range(20))), InfoHash(b"\xff" * 20)
PEER = PeerId(b"-SK0001-abcdefghijkl")
hashes = st.binary(min_size=20, max_size=20).map(InfoHash)
counts = st.integers(0, 2**31 - 1)


def scraped(data: bytes) -> dict[InfoHash, ScrapeFile]:
    return http_reply.parse_scrape(data, [HASH, OTHER])


def announced(data: bytes) -> AnnounceReply:
    return http_reply.parse_announce(data, max_peers=50)


class TestQueries:
    @given(st.lists(hashes, min_size=1, max_size=50, unique=True))
    def test_our_parser_reads_the_scrape_query(self, asked: list[InfoHash]) -> None:
        query = http_request.encode_scrape(asked)
        assert parse_scrape(query.encode("ascii"), 400).info_hashes == tuple(asked)
        assert len(query) <= 71 * len(asked)

    @given(hashes, st.binary(min_size=4, max_size=4))
    def test_our_parser_reads_the_announce_query(self, info_hash: InfoHash, key: bytes) -> None:
        announce = Announce(
            info_hash, PEER, port=0, bytes_left=Digits(b"1"), event=Event.STOPPED, peers_wanted=50, key=key
        )
        query = http_request.encode_announce(announce)
        assert parse_announce(query.encode("ascii")) == announce._replace(key=key.hex().encode(), no_peer_id=True)

    def test_unknown_fields_are_not_sent(self) -> None:
        said = parse_qs(http_request.encode_announce(Announce(HASH, PEER, port=1)), encoding="latin-1")
        assert unquote_to_bytes(said["info_hash"][0].encode("latin-1")) == HASH
        assert not {"left", "event", "numwant", "key"} & set(said)


class TestScrape:
    def test_a_scrape_has_the_counts_of_the_requested_torrents(self) -> None:
        data = bencode(
            {b"files": {HASH: {b"complete": 5, b"downloaded": 50, b"incomplete": 10}, b"x" * 20: {b"complete": 1}}}
        )
        assert scraped(data) == {HASH: ScrapeFile(seeders=5, completions=50, leechers=10)}

    @given(st.dictionaries(hashes, st.tuples(counts, counts, counts), max_size=50))
    def test_an_encoded_scrape_parses_to_the_same_counts(self, counts: dict[InfoHash, tuple[int, int, int]]) -> None:
        files = {
            info_hash: {"complete": seeders, "downloaded": completions, "incomplete": leechers}
            for info_hash, (seeders, completions, leechers) in sorted(counts.items())
        }
        parsed = http_reply.parse_scrape(bencode({"files": files, "flags": {"x": 1}}), list(counts))
        assert {k: (f.seeders, f.completions, f.leechers) for k, f in parsed.items()} == counts

    @pytest.mark.parametrize("data", [b"de", b"d5:files0:e", b"d5:filesle" + b"e", b"d5:filesi1ee"])
    def test_a_scrape_without_files_is_invalid(self, data: bytes) -> None:
        with pytest.raises(TrackerReplyError, match="no files"):
            scraped(data)

    @pytest.mark.parametrize("file", [b"le", b"i1e", b"0:"])
    def test_counts_outside_a_dictionary_are_invalid(self, file: bytes) -> None:
        with pytest.raises(TrackerReplyError, match="no counts"):
            scraped(b"d5:filesd20:" + HASH + file + b"ee")

    @pytest.mark.parametrize("number", [b"i-1e", b"i2147483648e", b"i9999999999999999999e", b"1:5", b"le"])
    def test_counts_out_of_range_are_invalid(self, number: bytes) -> None:
        with pytest.raises(TrackerReplyError, match="out of range"):
            scraped(b"d5:filesd20:" + HASH + b"d8:complete" + number + b"eee")


class TestAnnounce:
    def test_compact_peers_are_endpoints(self) -> None:
        data = bencode(
            {
                b"complete": 3,
                b"downloaded": 9,
                b"incomplete": 2,
                b"interval": 1800,
                b"min interval": 900,
                b"peers": b"\1\2\3\4\0\x50\5\6\7\x08\0\x51cut",
                b"peers6": bytes(range(18)),
            }
        )
        reply = announced(data)
        assert (reply.seeders, reply.leechers, reply.completions) == (3, 2, 9)
        assert (reply.interval_seconds, reply.min_interval_seconds) == (1800, 900)
        assert (reply.peers, reply.peers6) == (b"\1\2\3\4\0\x50\5\6\7\x08\0\x51", bytes(range(18)))

    def test_the_long_form_gives_endpoints_of_both_families(self) -> None:
        peers = [
            {b"ip": b"1.2.3.4", b"peer id": PEER, b"port": 80},
            {b"ip": b"::1", b"port": 81},
            {b"ip": b"::ffff:5.6.7.8", b"port": 82},
            {b"ip": b"peer.example", b"port": 83},
            {b"ip": b"1.2.3.4", b"port": 65536},
            {b"ip": 7, b"port": 80},
            {b"port": 80},
        ]
        reply = announced(bencode({b"interval": 1, b"peers": peers}))
        assert reply.peers == b"\1\2\3\4\0\x50\5\6\7\x08\0\x52"
        assert reply.peers6 == bytes(15) + b"\1\0\x51"

    def test_peers_beyond_the_maximum_are_ignored(self) -> None:
        long = [{b"ip": b"1.2.3.%d" % at, b"port": 1} for at in range(100)]
        for data in (bencode({b"peers": bytes(600), b"peers6": bytes(1800)}), bencode({b"peers": long})):
            reply = http_reply.parse_announce(data, max_peers=3)
            assert len(reply.peers) == 18
            assert len(reply.peers6) in (0, 54)

    def test_every_key_of_an_announce_reply_is_optional(self) -> None:
        assert announced(b"de") == AnnounceReply(0, 0, 0, 0, 0)

    @pytest.mark.parametrize("peers", [b"i1e", b"de", b"l1:xe", b"llee"])
    def test_peers_of_another_type_are_invalid(self, peers: bytes) -> None:
        with pytest.raises(TrackerReplyError, match="invalid peers"):
            announced(b"d5:peers" + peers + b"e")

    @given(counts, counts, st.binary(max_size=60))
    def test_our_own_replies_are_parsed(self, seeders: int, leechers: int, peers: bytes) -> None:
        reply = AnnounceReply(1800, 900, seeders, leechers, 7, peers[: len(peers) // 6 * 6])
        assert announced(http_reply.encode_announce(reply, Announce(HASH, PEER, 1))) == reply


class TestFailures:
    def test_a_failure_reason_is_the_text_of_the_refusal(self) -> None:
        data = http_reply.encode_failure(Refusal("denied", "unknown passkey"), 1, 1)
        for parse in (scraped, announced):
            with pytest.raises(TrackerRefusal) as refused:
                parse(data)
            assert refused.value.text == "unknown passkey"

    @pytest.mark.parametrize(
        ("reason", "text"), [(b"\xff\0", "\ufffd\0"), (b"x" * 1000, "x" * 200), (7, ""), ([b"x"], "")]
    )
    def test_any_failure_reason_is_accepted(self, reason: Any, text: str) -> None:
        with pytest.raises(TrackerRefusal) as refused:
            scraped(bencode({b"failure reason": reason}))
        assert refused.value.text == text


class TestHostility:
    @pytest.mark.parametrize(
        "data",
        [
            *(b"", b"d", b"e", b"i1e", b"4:spam", b"le", b"<html></html>", b"d1:a", b"d1:ae", b"d1:ai1e"),
            *(b"dee", b"de5:extra", b"dede", b"d1:ai1e1:be", b"dlei1ee", b"d9:ai1ee"),
            *(b"d1:ai01ee", b"d1:ai-0ee", b"d01:ai1ee", b"d1:ai1.5ee", b"d1:aiee", b"d1:a-1:e", b"d1:a99999999:e"),
            *(b"d1:ai1e1:ai2ee", b"d8:completei1e8:completei2ee"),
            b"d1:ai" + b"9" * 100_000 + b"ee",
            b"d1:a" + b"l" * 100_000 + b"e" * 100_000 + b"e",
            b"d1:a" + b"d1:a" * 60_000,
            b"d1:al" + b"i1e" * 60_000 + b"ee",
            b"d1:a262144:" + b"x" * 262_144 + b"e",
        ],
        ids=lambda data: repr(data[:20]),
    )
    def test_a_malformed_deep_or_large_reply_is_invalid(self, data: bytes) -> None:
        began = time.process_time()
        for parse in (scraped, announced):
            with pytest.raises(TrackerReplyError):
                parse(data)
        assert time.process_time() - began < 5

    def test_unsorted_keys_and_trailing_white_space_are_accepted(self) -> None:
        assert announced(b"d10:incompletei2e8:completei1ee\r\n").seeders == 1

    @given(st.binary(max_size=100), st.sampled_from([b"", b"d5:files", b"d5:peers", b"d5:filesd20:" + HASH]))
    def test_parsing_raises_the_two_errors_only(self, data: bytes, start: bytes) -> None:
        for parse in (scraped, announced):
            for end in (b"", b"e", b"ee"):
                with contextlib.suppress(TrackerRefusal, TrackerReplyError):
                    parse(start + data + end)

    @given(
        st.recursive(
            st.integers() | st.binary(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from([b"files", b"peers", b"peers6", b"complete", b"failure reason", b"ip", HASH]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_any_bencoded_reply_raises_the_two_errors_only(self, value: Any) -> None:
        for parse in (scraped, announced):
            with contextlib.suppress(TrackerRefusal, TrackerReplyError):
                parse(bencode({b"files": value, b"peers": value}))
