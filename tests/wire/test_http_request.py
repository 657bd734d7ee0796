import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracker.bittorrent import MAX_COUNT, Announce, Digits, Event, InfoHash, PeerId, Scrape
from tracker.refusals import Refusal
from tracker.wire.endpoint import format_address
from tracker.wire.http_request import (
    _MAX_CACHED_OPTIONS,
    MAX_PARAMETERS,
    _cached_options,
    _parse_any,
    parse_announce,
    parse_scrape,
)

VECTORS = Path(__file__).parent.parent / "vectors"
CLIENTS: dict[str, Any] = json.loads((VECTORS / "clients.json").read_text())
RECORDED: dict[str, Any] = json.loads((VECTORS / "recorded.json").read_text())

INFO_HASH = InfoHash(bytes.fromhex("123456789abcdef123456789abcdef123456789a"))
ESCAPED_HASH = b"%124Vx%9A%BC%DE%F1%23Eg%89%AB%CD%EF%124Vx%9A"
PEER_ID = PeerId(b"-qB4520-0123456789ab")
digits = st.integers(0, MAX_COUNT).map(lambda number: Digits(b"%d" % number))
BASE = b"info_hash=" + ESCAPED_HASH + b"&peer_id=" + PEER_ID


def announce(extra: bytes = b"", port: bytes = b"&port=6881") -> Announce:
    return parse_announce(BASE + port + extra)


def refusal(query: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        parse_announce(query)
    return caught.value.text


def parameters(target: str) -> dict[str, bytes]:
    """A second, independent parser for recorded requests."""
    pairs = (pair.partition("=") for pair in target.partition("?")[2].split("&"))
    return {name: unquote_to_bytes(value) for name, _, value in pairs}


class TestRealClients:
    @pytest.mark.parametrize("request_", CLIENTS["requests"], ids=lambda r: f"{r['client']} {r['event']}")
    def test_requests_of_nine_clients_are_parsed(self, request_: dict[str, str]) -> None:
        """T4: each client escapes and orders in its own way. The hash contains every difficult byte."""
        parsed = parse_announce(request_["target"].partition("?")[2].encode())
        said = parameters(request_["target"])
        assert parsed == Announce(
            info_hash=InfoHash(bytes.fromhex(CLIENTS["info_hash"])),
            peer_id=PeerId(bytes.fromhex(request_["peer_id"])),
            port=int(said["port"]),
            uploaded=Digits(said["uploaded"]),
            downloaded=Digits(said["downloaded"]),
            bytes_left=Digits(said["left"]),
            event=Event(request_["event"]),
            peers_wanted=int(said["numwant"]) if "numwant" in said else None,
            key=said.get("key", b""),
            compact=True,
            no_peer_id="no_peer_id" in said,
        )

    @pytest.mark.parametrize("request_", RECORDED["requests"], ids=lambda r: f"{r['client']} {r['head'][:9]}")
    def test_recorded_requests_are_parsed(self, request_: dict[str, str]) -> None:
        target = request_["head"].split(" ", 2)[1]
        said = parameters(target)
        if target.startswith("/scrape"):
            assert parse_scrape(target.partition("?")[2].encode(), 400).info_hashes == (said["info_hash"],)
            return
        parsed = parse_announce(target.partition("?")[2].encode())
        assert (parsed.info_hash, parsed.peer_id, parsed.key) == (said["info_hash"], said["peer_id"], said["key"])
        assert (parsed.port, parsed.bytes_left) == (int(said["port"]), said["left"])
        assert parsed.event == Event(said["event"].decode())

    def test_a_hybrid_torrent_is_announced_under_both_hashes(self) -> None:
        """BEP 52: clients cut the v2 hash to 20 bytes."""
        heads = [r["head"] for r in RECORDED["requests"] if r["client"] == "libtorrent" and "/announce" in r["head"]]
        hashes = {parse_announce(head.split(" ")[1].partition("?")[2].encode()).info_hash for head in heads}
        assert len(hashes) == 2

    def test_aria2s_key_is_raw_bytes(self) -> None:
        (started,) = (
            r["target"] for r in CLIENTS["requests"] if r["client"] == "aria2/1.36.0" and r["event"] == "started"
        )
        assert parse_announce(started.partition("?")[2].encode()).key == bytes.fromhex("8cdae3bf3721b3e7")


class TestDecoding:
    @pytest.mark.parametrize(
        "escaped",
        [
            quote_from_bytes(INFO_HASH, safe="").encode(),
            b"".join(b"%%%02x" % byte for byte in INFO_HASH),
            b"".join(b"%%%02X" % byte for byte in INFO_HASH),
            ESCAPED_HASH,
            bytes(INFO_HASH).replace(b"#", b"%23"),
        ],
    )
    def test_escapes_of_both_cases_and_raw_bytes_are_decoded(self, escaped: bytes) -> None:
        """T4"""
        assert parse_announce(b"peer_id=%b&port=1&info_hash=%b" % (PEER_ID, escaped)).info_hash == INFO_HASH

    def test_a_plus_is_a_space_and_an_escaped_plus_a_plus(self) -> None:
        parsed = parse_announce(b"info_hash=%s&port=1&peer_id=-qB4520-+%%2B+%%2b90123456" % ESCAPED_HASH)
        assert parsed.peer_id == b"-qB4520- + +90123456"

    def test_values_are_decoded_once(self) -> None:
        assert announce(b"&key=%2541%2526").key == b"%41%26"

    def test_malformed_escapes_stay_as_they_are(self) -> None:
        assert announce(b"&key=%zz%4%%41%").key == b"%zz%4%A%"

    @pytest.mark.parametrize("key", [rb"\x41", rb"\%41", rb"a\n%42", b"\\", b"%5Cx41"])
    def test_a_backslash_has_no_special_meaning(self, key: bytes) -> None:
        assert announce(b"&key=" + key).key == unquote_to_bytes(key)

    @given(st.lists(st.sampled_from([b"%", b"\\", b"x", b"4", b"f", b"n", b"\xff", b"%41", b"%e2", b"="])))
    def test_decoding_equals_urllibs(self, pieces: list[bytes]) -> None:
        key = b"".join(pieces)[:64]
        assert announce(b"&key=" + key).key == unquote_to_bytes(key)

    def test_unusual_parameters_are_tolerated(self) -> None:
        """T4: empty values, missing "=", unknown, repeated and empty parameters."""
        parsed = announce(b"&event=&&flag&=&x=y=z&left=&uploaded=&numwant=&key&compact=&ip=&port=7&left=9&")
        assert parsed == Announce(INFO_HASH, PEER_ID, 6881)

    def test_the_first_of_repeated_parameters_counts(self) -> None:
        assert announce(b"&left=1&left=2").bytes_left == b"1"

    def test_parameters_beyond_a_hundred_are_ignored(self) -> None:
        assert announce(b"&a=b" * MAX_PARAMETERS + b"&left=junk").bytes_left is None

    @given(st.binary(max_size=300))
    @example(b"info_hash=%")
    @example(BASE + b"&port=" + b"9" * 5000)
    def test_parsing_raises_client_errors_only(self, junk: bytes) -> None:
        for query in (junk, BASE + b"&port=1&" + junk, BASE + b"&port=" + junk, BASE + b"&port=1&left=" + junk):
            with suppress(Refusal):
                parse_announce(query)
            with suppress(Refusal):
                parse_scrape(query, 10)

    @given(
        st.builds(
            Announce,
            own_family=st.just(False),
            info_hash=st.binary(min_size=20, max_size=20),
            peer_id=st.binary(min_size=20, max_size=20),
            port=st.integers(1, 65535),
            uploaded=digits,
            downloaded=digits,
            bytes_left=st.none() | digits,
            event=st.sampled_from(Event),
            peers_wanted=st.none() | st.integers(0, 10**6),
            key=st.binary(max_size=64),
            compact=st.booleans(),
            no_peer_id=st.booleans(),
            stated_address=st.none() | st.binary(min_size=4, max_size=4),
        ),
        st.sampled_from(["", "-_.!~*'()", "/:@$,;? "]),
        st.randoms(),
    )
    def test_every_field_is_parsed_as_the_client_sent_it(self, said: Announce, safe: str, order: Any) -> None:
        """T4: in any order, with any choice of unescaped characters."""
        fields: dict[str, bytes | int | None] = {
            "info_hash": said.info_hash,
            "peer_id": said.peer_id,
            "port": said.port,
            "uploaded": said.uploaded,
            "downloaded": said.downloaded,
            "left": said.bytes_left,
            "event": said.event.value.encode() or None,
            "numwant": said.peers_wanted,
            "key": said.key,
            "compact": int(said.compact),
            "no_peer_id": int(said.no_peer_id),
            "ip": format_address(said.stated_address).encode() if said.stated_address else None,
        }
        pairs = [
            f"{name}={quote_from_bytes(value, safe) if isinstance(value, bytes) else value}"
            for name, value in fields.items()
            if value is not None
        ]
        order.shuffle(pairs)
        assert parse_announce("&".join(pairs).encode()) == said


class TestIdentity:
    def test_a_hash_in_hex_has_its_own_failure_reason(self) -> None:
        text = refusal(b"info_hash=" + INFO_HASH.hex().encode() + b"&port=1&peer_id=" + PEER_ID)
        assert text == "info_hash must be the raw 20 bytes, not 40 hexadecimal digits"

    @pytest.mark.parametrize("value", [b"", b"a" * 19, b"a" * 21, b"%41" * 32])
    def test_hash_and_peer_id_are_exactly_20_bytes(self, value: bytes) -> None:
        """T4"""
        assert "info_hash" in refusal(b"port=1&peer_id=%b&info_hash=%b" % (PEER_ID, value))
        assert "peer_id" in refusal(b"port=1&info_hash=%b&peer_id=%b" % (ESCAPED_HASH, value))

    def test_a_missing_hash_or_peer_id_is_refused(self) -> None:
        assert refusal(b"") == "info_hash is missing"
        assert "peer_id" in refusal(b"port=1&info_hash=" + ESCAPED_HASH)

    @pytest.mark.parametrize("first", ["info_hash", "peer_id"])
    def test_a_question_mark_in_a_hash_or_id_stays(self, first: str) -> None:
        ids = {"info_hash": "?" * 20, "peer_id": "-XX?info_hash=??????"}
        second = "peer_id" if first == "info_hash" else "info_hash"
        query = f"passkey=a?{first}={ids[first]}&{second}={ids[second]}&port=1"
        parsed = parse_announce(query.encode())
        assert (parsed.info_hash, parsed.peer_id) == (b"?" * 20, ids["peer_id"].encode())

    def test_two_equal_hashes_are_refused(self) -> None:
        assert "two" in refusal(BASE + b"&port=1&info_hash=" + ESCAPED_HASH)

    def test_a_key_longer_than_64_bytes_is_ignored(self) -> None:
        assert announce(b"&key=" + b"k" * 64).key == b"k" * 64
        assert announce(b"&key=" + b"%6b" * 64).key == b"k" * 64
        assert announce(b"&key=" + b"k" * 65).key == b""
        assert announce(b"&key=" + b"%6b" * 65).key == b""

    @pytest.mark.parametrize(
        ("text", "address"),
        [
            (b"1.2.3.4", b"\1\2\3\4"),
            (b"%3A%3affff:1.2.3.4", b"\1\2\3\4"),
            (b"2001:db8::1", bytes.fromhex("20010db8000000000000000000000001")),
            (b"example.org", None),
            (b"1.2.3", None),
            (b"01.2.3.4", None),
            (b"1.2.3.4%00", None),
            (b"fe80::1%25eth0", None),
            (b"%ff", None),
        ],
    )
    def test_a_stated_address_is_packed_or_ignored(self, text: bytes, address: bytes | None) -> None:
        """T25"""
        assert announce(b"&ip=" + text).stated_address == address


class TestNumbers:
    @pytest.mark.parametrize("name", [b"left", b"uploaded", b"downloaded"])
    @pytest.mark.parametrize(
        ("text", "value"), [(b"007", b"7"), (b"%38", b"8"), (b"0" * 5000 + b"5", b"5"), (b"0" * 30, b"0")]
    )
    def test_a_count_may_be_written_in_other_ways(self, name: bytes, text: bytes, value: bytes) -> None:
        parsed = announce(b"&%b=%b" % (name, text))
        assert getattr(parsed, "bytes_left" if name == b"left" else name.decode()) == value

    @pytest.mark.parametrize("name", [b"left", b"uploaded", b"downloaded"])
    @pytest.mark.parametrize(
        "text", [b"-1", b"1.5", b"1e3", b"+1", b"%2B1", b"1_0", b" 1", b"x", b"99999999999999999999", b"9" * 5000]
    )
    def test_invalid_counts_are_refused(self, name: bytes, text: bytes) -> None:
        assert refusal(BASE + b"&port=1&%b=%b" % (name, text)).startswith(name.decode())

    def test_left_of_a_magnet_link_is_unknown(self) -> None:
        """Transmission 2 sends 2^64 - 1 while it does not know the size."""
        target = (
            b"info_hash=M%ce%bd%f2%0fg%ce%0aG%8f%d5%05%9aLa%3a%c9a%e18&peer_id=-TR2840-0123456789ab&port=51413"
            b"&uploaded=0&downloaded=0&left=18446744073709551615&numwant=80&key=77de6423&compact=1&event=started"
        )
        assert parse_announce(target).bytes_left is None

    def test_a_missing_left_is_none(self) -> None:
        assert announce().bytes_left is None
        assert announce(b"&left=0").bytes_left == b"0"

    @pytest.mark.parametrize(
        ("text", "wanted"), [(b"0", 0), (b"50", 50), (b"-1", None), (b"", None), (b"many", None), (b"200", 200)]
    )
    def test_numwant_is_a_number_or_the_default(self, text: bytes, wanted: int | None) -> None:
        """T25: 0 is honoured; negative and invalid numbers select the default."""
        assert announce(b"&numwant=" + text).peers_wanted == wanted

    @pytest.mark.parametrize("text", [b"0", b"", b"65536", b"-1", b"x", b"6881.0", b"9" * 5000])
    def test_a_port_is_1_to_65535(self, text: bytes) -> None:
        """T25"""
        assert refusal(BASE + b"&port=" + text) == "port must be from 1 to 65535"

    def test_port_0_is_accepted_on_stopped_only(self) -> None:
        assert refusal(BASE) == "port must be from 1 to 65535"
        assert parse_announce(BASE + b"&event=stopped").port == 0
        assert announce(b"&event=stopped", port=b"&port=0").port == 0
        assert refusal(BASE + b"&port=70000&event=stopped") == "port must be from 1 to 65535"


class TestFlags:
    @pytest.mark.parametrize(
        ("text", "event"),
        [(e.value.encode(), e) for e in Event] + [(b"Started", Event.UPDATE), (b"gone", Event.UPDATE)],
    )
    def test_an_unknown_event_is_an_update(self, text: bytes, event: Event) -> None:
        assert announce(b"&event=" + text).event is event

    def test_replies_are_compact_by_default(self) -> None:
        assert announce().compact and announce(b"&compact=1").compact and not announce(b"&compact=0").compact

    def test_no_peer_id_is_read(self) -> None:
        assert announce(b"&no_peer_id=1").no_peer_id
        assert not announce().no_peer_id and not announce(b"&no_peer_id=0").no_peer_id


class TestScrape:
    """T18"""

    def test_a_scrape_has_none_one_or_many_hashes(self) -> None:
        other = b"%00" * 20
        assert parse_scrape(b"info_hash=" + ESCAPED_HASH, 5) == Scrape((INFO_HASH,))
        both = parse_scrape(b"x=1&info_hash=%b&info_hash=%b&" % (other, ESCAPED_HASH), 5)
        assert both.info_hashes == (bytes(20), INFO_HASH)
        assert parse_scrape(b"", 5) == Scrape(()) == parse_scrape(b"passkey=x", 5)

    def test_a_malformed_hash_in_a_scrape_is_ignored(self) -> None:
        query = b"info_hash=short&info_hash=%b&info_hash=%b" % (ESCAPED_HASH, INFO_HASH.hex().encode())
        assert parse_scrape(query, 5) == Scrape((INFO_HASH,))

    @pytest.mark.parametrize("query", [b"info_hash=short", b"info_hash=", b"info_hash", b"info_hash=%zz&info_hash="])
    def test_a_scrape_of_malformed_hashes_only_is_refused(self, query: bytes) -> None:
        with pytest.raises(Refusal):
            parse_scrape(query, 5)

    def test_a_scrape_keeps_distinct_hashes_and_more_than_the_limit_are_refused(self) -> None:
        hashes = b"&".join(b"info_hash=" + b"%%%02x" % n * 20 for n in (1, 1, 2, 3))
        assert parse_scrape(hashes, 3).info_hashes == (b"\1" * 20, b"\2" * 20, b"\3" * 20)
        with pytest.raises(Refusal, match="scrape fewer torrents at once"):
            parse_scrape(hashes, 2)


_NAMES = ["info_hash", "peer_id", "port", "uploaded", "downloaded", "left", "key", "event", "numwant", "compact"]
_NAMES += ["no_peer_id", "ip", "corrupt", "redundant", "supportcrypto", "x", ""]
_VALUES = [ESCAPED_HASH, PEER_ID, b"0", b"1", b"6881", b"65536", b"00", b"123456789012345", b"9" * 16, b"-1", b""]
_VALUES += [b"started", b"stopped", b"a+b", b"%41%2", b"10.1.2.3", b"\\", b"a=b", b"8CD4A1F0"]
_COMMON = [f"info_hash={ESCAPED_HASH.decode()}", f"peer_id={PEER_ID.decode()}", "port=6881"]
_COMMON += ["uploaded=1", "downloaded=2", "left=3", "corrupt=0", "key=8CD4A1F0", "event=started", "numwant=50"]


def _read(parse: Any, query: bytes) -> object:
    try:
        return parse(query)
    except Refusal as error:
        return error.text, error.retry_in


class TestTwoParsers:
    """The fast parser and the general parser give the same result."""

    @given(
        st.lists(st.integers(0, len(_COMMON)), max_size=4),
        st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES), st.integers(0, 12)), max_size=4),
        st.integers(0, 3),
    )
    def test_both_parsers_agree_on_parameters(
        self, left_out: list[int], put_in: list[tuple[str, bytes, int]], turns: int
    ) -> None:
        parameters = [text.encode() for n, text in enumerate(_COMMON) if n not in left_out]
        for name, value, place in put_in:
            parameters.insert(place, name.encode() + b"=" * bool(name or value) + value)
        parameters = parameters[:2] + parameters[2 + turns :] + parameters[2 : 2 + turns]
        query = b"&".join(parameters)
        assert _read(parse_announce, query) == _read(_parse_any, query)

    @pytest.mark.parametrize("name", ["corrupt", "redundant"])
    @pytest.mark.parametrize("value", ["8CD4A1F0", "1x", "12%26", "1=2", "01", "9" * 300 + "x"])
    def test_a_counter_that_is_no_number_changes_no_other_parameter(self, name: str, value: str) -> None:
        for place in range(len(_COMMON) + 1):
            query = "&".join([*_COMMON[:place], f"{name}={value}", *_COMMON[place:]]).encode()
            assert _read(parse_announce, query) == _read(_parse_any, query)
        assert parse_announce(query).event is Event.STARTED

    @given(
        st.lists(st.sampled_from(["passkey=0a1b", "x=1", "port=1", "", "a=?", "?"]), min_size=1, max_size=3),
        st.sampled_from(["", "&key=a?b", "&x=?info_hash=1", "&y?left=5"]),
    )
    def test_a_query_appended_with_a_second_question_mark_is_read_as_one(self, own: list[str], after: str) -> None:
        """The parameters of the announce URL come first. Any other ``?`` stays."""
        url, asked = "&".join(own), "&".join(_COMMON) + after
        expected = _read(_parse_any, f"{url}&{asked}".encode())
        assert _read(parse_announce, f"{url}?{asked}".encode()) == expected
        hashes = f"info_hash={ESCAPED_HASH.decode()}&info_hash={'?' * 20}"
        assert parse_scrape(f"{url}?{hashes}".encode(), 5).info_hashes == (INFO_HASH, b"?" * 20)

    @pytest.mark.parametrize("place", range(4))
    def test_a_question_mark_in_any_value_stays(self, place: int) -> None:
        values = [f"info_hash={'?' * 20}", f"peer_id={'?' * 20}", "key=a?b?port=7", "port=6881"]
        parsed = parse_announce("&".join([*values[place:], *values[:place]]).encode())
        assert parsed == Announce(InfoHash(b"?" * 20), PeerId(b"?" * 20), 6881, key=b"a?b?port=7")

    @given(st.binary(max_size=300))
    def test_both_parsers_agree_on_trailing_bytes(self, noise: bytes) -> None:
        query = "&".join(_COMMON).encode() + b"&" + noise
        assert _read(parse_announce, query) == _read(_parse_any, query)

    @pytest.mark.parametrize("separator", [b"&port=1", b"&uploaded=1", b"&a=b", b"&"])
    def test_parsing_a_hostile_query_takes_linear_time(self, separator: bytes) -> None:
        base = b"info_hash=" + ESCAPED_HASH + b"&peer_id=" + PEER_ID
        query = base + separator * (30_000 // len(separator)) + b"&port=1&uploaded=1&downloaded=1&left=x"
        began = time.process_time()
        for _ in range(20):
            _read(parse_announce, query)
        assert time.process_time() - began < 2

    def test_the_cache_of_options_is_bounded(self) -> None:
        for n in range(3 * _MAX_CACHED_OPTIONS):
            parse_announce("&".join(_COMMON).encode() + b"&x%d=1" % n)
        assert len(_cached_options) <= _MAX_CACHED_OPTIONS
