import struct
from contextlib import suppress
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Address
from tracker.wire.proxy import MAX_PROXY_HEADER_LENGTH, Networks, ProxyHeader, client_address, parse_proxy_header

TRUSTED = Networks([ip_network("10.0.0.0/8"), ip_network("192.0.2.7/32"), ip_network("fd00::/8")])
PROXY, OTHER_PROXY = "10.0.0.1", "10.0.0.2"
V2 = b"\r\n\r\n\0\r\nQUIT\n"


def packed(text: str) -> Address:
    return Address(ip_address(text).packed)


def client(*lines: str, forwarded: tuple[str, ...] = (), connection: str = PROXY) -> str:
    return str(ip_address(client_address(packed(connection), lines, forwarded, TRUSTED)))


class TestNetworks:
    def test_an_address_belongs_to_its_networks(self) -> None:
        for inside in ("10.255.255.255", "192.0.2.7", "fd12::1"):
            assert packed(inside) in TRUSTED
        for outside in ("11.0.0.0", "192.0.2.8", "fc00::1", "::a00:1"):
            assert packed(outside) not in TRUSTED

    def test_no_networks_contain_nothing_and_default_routes_everything(self) -> None:
        assert not Networks() and packed("10.0.0.1") not in Networks()
        everything = Networks([ip_network("0.0.0.0/0")])
        assert everything and packed("8.8.8.8") in everything and packed("::1") not in everything

    @given(st.integers(0, 2**32 - 1), st.integers(0, 32), st.integers(0, 2**32 - 1))
    def test_membership_equals_the_standard_librarys(self, base: int, length: int, number: int) -> None:
        network = ip_network((base, length), strict=False)
        address = ip_address(number)
        assert (Address(address.packed) in Networks([network])) is (address in network)

    def test_bytes_of_no_family_belong_to_no_network(self) -> None:
        assert Address(b"") not in TRUSTED


class TestForwardedFor:
    """T25: the client is the rightmost hop that is not a trusted proxy."""

    def test_headers_of_untrusted_connections_are_ignored(self) -> None:
        assert client("1.1.1.1", connection="8.8.8.8") == "8.8.8.8"
        assert client(connection="8.8.8.8", forwarded=("for=1.1.1.1",)) == "8.8.8.8"

    def test_without_a_header_the_connection_is_the_client(self) -> None:
        assert client() == PROXY

    def test_the_rightmost_untrusted_hop_is_the_client(self) -> None:
        assert client("6.6.6.6, 9.9.9.9") == "9.9.9.9"
        assert client(f"6.6.6.6, 9.9.9.9, {OTHER_PROXY}") == "9.9.9.9"

    def test_several_lines_are_one_list(self) -> None:
        assert client("6.6.6.6", "9.9.9.9", OTHER_PROXY) == "9.9.9.9"

    def test_the_leftmost_hop_counts_where_all_are_trusted(self) -> None:
        assert client(f"10.3.3.3, {OTHER_PROXY}") == "10.3.3.3"

    @pytest.mark.parametrize(
        "entry", ["9.9.9.9:4711", " 9.9.9.9\t", "[::ffff:9.9.9.9]", "::ffff:9.9.9.9", "[::ffff:9.9.9.9]:80"]
    )
    def test_an_ipv4_hop_may_have_a_port(self, entry: str) -> None:
        assert client(entry) == "9.9.9.9"

    @pytest.mark.parametrize("entry", ["2001:db8::9", "[2001:db8::9]", "[2001:db8::9]:4711"])
    def test_an_ipv6_hop_may_have_brackets_and_a_port(self, entry: str) -> None:
        assert client(entry) == "2001:db8::9"

    @pytest.mark.parametrize(
        "entry", ["", "unknown", "_x", "9.9.9.9:", "9.9.9.9:x y", "[::1", "[::1]x", "]", "9.9.9", "\0", "²", "[]"]
    )
    def test_an_invalid_hop_ends_the_search(self, entry: str) -> None:
        assert client(f"6.6.6.6, {entry}") == PROXY
        assert client(f"6.6.6.6, {entry}, {OTHER_PROXY}") == OTHER_PROXY

    def test_a_mapped_connection_is_ipv4(self) -> None:
        assert client("9.9.9.9", connection="::ffff:10.0.0.1") == "9.9.9.9"
        assert client("9.9.9.9", connection="::ffff:8.8.8.8") == "8.8.8.8"

    def test_a_forged_forwarded_header_is_ignored(self) -> None:
        """Most proxies set X-Forwarded-For and pass on a client's Forwarded unchanged."""
        assert client("9.9.9.9", forwarded=("for=6.6.6.6",)) == "9.9.9.9"
        assert client("nonsense", forwarded=("for=6.6.6.6",)) == PROXY
        assert client("", forwarded=("for=6.6.6.6",)) == PROXY


class TestForwarded:
    """RFC 7239, and T25 for it."""

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("for=9.9.9.9", "9.9.9.9"),
            ('For="9.9.9.9:47011"', "9.9.9.9"),
            ('for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
            ('for="[2001:db8:cafe::17]:_obf"', "2001:db8:cafe::17"),
            ("for=6.6.6.6, for=9.9.9.9;proto=http;by=203.0.113.43", "9.9.9.9"),
            ("for=9.9.9.9, for=10.4.4.4", "9.9.9.9"),
            (r'by=x;host="a,b;c=\"d\\";for=9.9.9.9', "9.9.9.9"),
            ('host=";for=6.6.6.6;";for=9.9.9.9', "9.9.9.9"),
            (r'for="6.6.6.6, for=9.9.9.9;host="x\\"', "9.9.9.9"),
            (r'for="9.9\.9.9"', "9.9.9.9"),
        ],
    )
    def test_the_rightmost_untrusted_hop_is_the_client(self, line: str, expected: str) -> None:
        assert client(forwarded=(line,)) == expected

    @pytest.mark.parametrize(
        "element",
        [
            *("for=unknown", "for=_hidden", 'for="_SEVKISEK"', "proto=http", "", "for", "for=", 'for="9.9.9.9'),
            *("for=8.8.8.8;for=9.9.9.9", "for=9.9.9.9;;", "for =9.9.9.9", "for=9.9.9.9 junk", "9.9.9.9"),
        ],
    )
    def test_hidden_and_invalid_hops_end_the_search(self, element: str) -> None:
        assert client(forwarded=(f"for=6.6.6.6, {element}",)) == PROXY
        assert client(forwarded=(f"for=6.6.6.6, {element}", f"for={OTHER_PROXY}")) == OTHER_PROXY

    def test_an_open_quote_does_not_hide_the_proxys_element(self) -> None:
        assert client(forwarded=('for="6.6.6.6, for=9.9.9.9',)) == "9.9.9.9"
        assert client(forwarded=('for="6.6.6.6', "for=9.9.9.9")) == "9.9.9.9"


header_text = st.text(alphabet=st.sampled_from(list('for=,;:"\\[]_1. \t\0é')) | st.characters(), max_size=60)


@given(st.lists(header_text, max_size=3), st.lists(header_text, max_size=3))
def test_no_header_raises_or_overrides_the_proxy(lines: list[str], forwarded: list[str]) -> None:
    assert len(client_address(packed(PROXY), lines, forwarded, TRUSTED)) in {4, 16}
    assert client_address(packed(PROXY), [*lines, "9.9.9.9"], forwarded, TRUSTED) == packed("9.9.9.9")
    assert client_address(packed(PROXY), (), [*forwarded, "for=9.9.9.9"], TRUSTED) == packed("9.9.9.9")


@given(header_text)
def test_a_clients_entries_on_the_proxys_line_are_ignored(written: str) -> None:
    for lines, forwarded in (([f"{written}, 9.9.9.9"], []), ([], [f"{written}, for=9.9.9.9"])):
        assert client_address(packed(PROXY), lines, forwarded, TRUSTED) == packed("9.9.9.9")


def v2(command: int, family: int, body: bytes) -> bytes:
    return V2 + bytes([command, family]) + struct.pack("!H", len(body)) + body


PORTS = struct.pack("!HH", 1000, 6969)
TCP4 = v2(0x21, 0x11, packed("9.9.9.9") + packed("10.0.0.1") + PORTS)
TCP6 = v2(0x21, 0x21, packed("2001:db8::9") + packed("::1") + PORTS)
TLV = b"\x03\x00\x04abcd"


class TestProxyProtocol:
    @pytest.mark.parametrize(
        ("header", "source"),
        [
            (b"PROXY TCP4 9.9.9.9 10.0.0.1 1000 6969\r\n", "9.9.9.9"),
            (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255"),
            (b"PROXY TCP6 2001:db8::9 ::1 1000 6969\r\n", "2001:db8::9"),
            (b"PROXY TCP6 ::ffff:9.9.9.9 ::1 1000 6969\r\n", "9.9.9.9"),
            (b"PROXY UNKNOWN\r\n", None),
            (b"PROXY UNKNOWN ffff:f::f whatever 1 2\r\n", None),
            (TCP4, "9.9.9.9"),
            (TCP6, "2001:db8::9"),
            (v2(0x21, 0x11, TCP4[16:] + TLV), "9.9.9.9"),
            (v2(0x21, 0x11, TCP4[16:] + bytes(524)), "9.9.9.9"),
            (v2(0x21, 0x21, packed("::ffff:9.9.9.9") + packed("::1") + PORTS), "9.9.9.9"),
            (v2(0x20, 0x00, b""), None),
            (v2(0x20, 0x11, TCP4[16:]), None),
            (v2(0x21, 0x00, TLV), None),
            (v2(0x21, 0x31, bytes(216)), None),
        ],
    )
    def test_a_proxy_header_is_parsed_byte_by_byte(self, header: bytes, source: str | None) -> None:
        for end in range(len(header)):
            assert parse_proxy_header(header[:end]) is None
        expected = ProxyHeader(len(header), packed(source) if source else None)
        assert parse_proxy_header(header) == expected
        assert parse_proxy_header(header + b"GET / HTTP/1.1\r\n") == expected

    @pytest.mark.parametrize(
        "header",
        [
            b"GET /announce HTTP/1.1\r\n",
            b"\x16\x03\x01",
            b"PROXZ",
            b"PROXY \r\n",
            b"PROXY TCP4\r\n",
            b"PROXY TCP5 9.9.9.9 10.0.0.1 1000 6969\r\n",
            b"PROXY TCP4  9.9.9.9 10.0.0.1 1000 6969\r\n",
            b"PROXY TCP4 9.9.9.9 10.0.0.1 1000\r\n",
            b"PROXY TCP4 9.9.9.9 10.0.0.1 1000 65536\r\n",
            b"PROXY TCP4 9.9.9.9 10.0.0.1 1000 x\r\n",
            b"PROXY TCP4 9.9.9.9 10.0.0.1 1000 \xb2\r\n",
            b"PROXY TCP4 9.9.9 10.0.0.1 1000 6969\r\n",
            b"PROXY TCP4 2001:db8::9 ::1 1000 6969\r\n",
            b"PROXY TCP6 9.9.9.9 10.0.0.1 1000 6969\r\n",
            b"PROXY TCP6 ::1 10.0.0.1 1000 6969\r\n",
            b"PROXY UNKNOWN " + b"x" * 100,
            b"PROXY UNKNOWN " + b"x" * 100 + b"\r\n",
            v2(0x11, 0x11, TCP4[16:]),
            v2(0x22, 0x11, TCP4[16:]),
            v2(0x21, 0x41, TCP4[16:]),
            v2(0x21, 0x11, TCP4[16:-1]),
            v2(0x21, 0x21, TCP4[16:]),
            v2(0x21, 0x31, bytes(215)),
            V2 + b"\x21\x11\xff\xff",
        ],
    )
    def test_invalid_proxy_headers_are_rejected(self, header: bytes) -> None:
        with pytest.raises(ValueError, match="PROXY"):
            parse_proxy_header(header)

    @given(st.binary(max_size=80), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", V2, V2 + b"\x21\x11\x00\x0c"]))
    def test_parsing_raises_value_errors_only(self, junk: bytes, start: bytes) -> None:
        try:
            header = parse_proxy_header(start + junk)
        except ValueError:
            return
        assert header is None or 8 <= header.length <= len(start + junk)

    @given(st.binary(min_size=MAX_PROXY_HEADER_LENGTH), st.sampled_from([b"", b"PROXY ", V2]))
    def test_a_header_beyond_the_limit_is_rejected(self, junk: bytes, start: bytes) -> None:
        with suppress(ValueError):
            assert parse_proxy_header(start + junk) is not None
