import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.wire.peer_id import client_name, printable_prefix

VECTORS = Path(__file__).parent.parent / "vectors"


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"-qB4520-", "qBittorrent 4.5.2"),
        (b"-qB4301-", "qBittorrent 4.3.0.1"),
        (b"-TR2940-", "Transmission 2.94"),
        (b"-TR3000-", "Transmission 3.00"),
        (b"-TR4060-", "Transmission 4.0.6"),
        (b"-LT20B0-", "libtorrent 2.0.11"),
        (b"-lt0D80-", "libTorrent (rakshasa) 0.13.8"),
        (b"-DE203s-", "Deluge 2.0.3"),
        (b"-DE13F0-", "Deluge 1.3.15"),
        (b"-UT355S-", "µTorrent 3.5.5"),
        (b"-AZ5750-", "Vuze 5.7.5"),
        (b"-WW0208-", "WebTorrent 2.8"),
        (b"-BC0187-", "BitComet 1.87"),
        (b"-BCabcd-", "BitComet 10.11.12"),
        (b"-CD0303-", "Enhanced CTorrent 3.3"),
        (b"-Zz1230-", "Zz 1.2.3"),
        (b"-qB.-.--", "qBittorrent"),
        (b"A2-1-36-0-", "aria2 1.36.0"),
        (b"M7-10-1--", "Mainline 7.10.1"),
        (b"Q1-23-0--", "Queen Bee 1.23.0"),
        (b"S58B-----", "Shadow 5.8.11"),
        (b"T03I-----", "BitTornado 0.3.18"),
        (b"TIX0193-", "Tixati 1.93"),
        (b"-ML2.7.2-", "MLdonkey 2.7.2"),
        (b"exbc\x00\x38", "BitComet 0.56"),
        (b"OP1234", "OP1234"),
        (b"ab\x00", "unknown"),
        (b"\xff\xfe", "unknown"),
    ],
)
def test_each_style_of_peer_id_has_its_name(start: bytes, name: str) -> None:
    """BEP 20: the styles of Azureus, Mainline and Shadow, rare ones, and unknown ones."""
    assert client_name(start.ljust(20, b"\x01")) == name


def test_recorded_clients_are_named() -> None:
    requests = json.loads((VECTORS / "clients.json").read_text())["requests"]
    names = {client_name(bytes.fromhex(request["peer_id"])) for request in requests}
    assert names == {
        *("Deluge 2.0.3", "Enhanced CTorrent 3.3", "Transmission 3.00", "WebTorrent 2.8", "libtorrent 2.0.8"),
        *("libtorrent 2.1.1", "aria2 1.36.0", "qBittorrent 4.5.2", "libTorrent (rakshasa) 0.13.8"),
    }


@pytest.mark.parametrize(
    ("peer_id", "prefix"),
    [(b"-qB4520-abcdefghijkl", "-qB4520-"), (b"ab cd", "ab"), (b"\x7fabc", ""), (b"", ""), (b"a\xe9b", "a")],
)
def test_a_prefix_ends_at_the_first_unprintable_byte(peer_id: bytes, prefix: str) -> None:
    assert printable_prefix(peer_id) == prefix


pieces = st.sampled_from([b"-", b"qB", b"TR", b"BC", b"9", b"~", b".", b"T", b"M1-", b"exbc", b"TIX", b"\xb2", b"\n"])


@given(st.binary(max_size=30) | st.lists(pieces).map(b"".join))
def test_any_bytes_give_a_short_printable_name(peer_id: bytes) -> None:
    assert 2 <= len(client_name(peer_id)) <= 40 and client_name(peer_id).isprintable()
    assert printable_prefix(peer_id).isprintable()
