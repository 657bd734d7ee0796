"""The client program that a peer id names (BEP 20), as readable text. A client chooses its peer id, so any program can
claim any name. Do not decide anything by these texts, and do not use them as labels of counters: a hostile client can
invent any number of them."""

import re
from binascii import hexlify, unhexlify
from collections.abc import Callable

from tracker.bittorrent import PeerId

_PREFIX_LENGTH = 8
_MIN_PREFIX_LENGTH = 3
_USUAL_LENGTH = 8
"""Of a key: 32 bits in hex."""
_MAX_LENGTH = 64

_INTEGER = re.compile(rb"-?[0-9]{1,10}").fullmatch
_HEX = re.compile(rb"[0-9A-Fa-f]{1,8}").fullmatch

_AZUREUS_NAMES = {
    "7T": "aTorrent", "AG": "Ares", "AR": "Arctic", "AT": "Artemis", "AX": "BitPump", "AZ": "Vuze",
    "BB": "BitBuddy", "BC": "BitComet", "BE": "BitTorrent SDK", "BF": "Bitflu", "BG": "BTG",
    "BI": "BiglyBT", "BL": "BitLord", "BR": "BitRocket", "BS": "BTSlave", "BT": "BitTorrent",
    "CD": "Enhanced CTorrent", "CT": "CTorrent", "DE": "Deluge", "DP": "Propagate Data Client",
    "EB": "EBit", "ES": "Electric Sheep", "FC": "FileCroc", "FD": "Free Download Manager",
    "FG": "FlashGet", "FL": "Flud", "FT": "FoxTorrent", "FW": "FrostWire", "GS": "GSTorrent",
    "GT": "anacrolix torrent", "HL": "Halite", "HN": "Hydranode", "KG": "KGet", "KT": "KTorrent",
    "LC": "LeechCraft", "LP": "Lphant", "LT": "libtorrent", "LW": "LimeWire", "MG": "MediaGet",
    "MK": "Meerkat", "ML": "MLdonkey", "MO": "MonoTorrent", "MP": "MooPolice", "MR": "Miro",
    "MT": "MoonlightTorrent", "NX": "Net Transport", "OS": "OneSwarm", "PC": "CacheLogic",
    "PI": "PicoTorrent", "PT": "Popcorn Time", "QD": "QQDownload", "QT": "Qt torrent example",
    "RT": "Retriever", "SB": "Swiftbit", "SD": "Xunlei", "SN": "ShareNET", "SS": "SwarmScope",
    "ST": "SymTorrent", "SZ": "Shareaza", "TB": "Torch", "TL": "Tribler", "TN": "TorrentDotNET",
    "TR": "Transmission", "TS": "Torrentstorm", "TT": "TuoTu", "TX": "Tixati", "UL": "uLeecher!",
    "UM": "µTorrent Mac", "UT": "µTorrent", "UW": "µTorrent Web", "VG": "Vagaa", "WD": "WebTorrent Desktop",
    "WT": "BitLet", "WW": "WebTorrent", "WY": "FireTorrent", "XF": "Xfplay", "XL": "Xunlei",
    "XT": "XanTorrent", "XX": "Xtorrent", "ZT": "ZipTorrent", "lt": "libTorrent (rakshasa)",
    "qB": "qBittorrent", "rQ": "rqbit", "st": "SharkTorrent",
}  # fmt: skip
_MAINLINE_NAMES = {b"M": "Mainline", b"Q": "Queen Bee", b"A2-": "aria2"}
_SHADOW_NAMES = {
    b"A": "ABC", b"O": "Osprey Permaseed", b"Q": "BTQueue", b"R": "Tribler", b"S": "Shadow",
    b"T": "BitTornado", b"U": "UPnP NAT",
}  # fmt: skip
_SHADOW_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz."


def client_name(peer_id: bytes) -> str:
    """``-qB4520-…`` -> ``"qBittorrent 4.5.2"``. An unknown program keeps its two letters or its prefix. Any bytes give
    a short printable text; without a readable prefix it is ``"unknown"``."""
    for pattern, name in _STYLES:
        if match := pattern.match(peer_id):
            return name(match)
    prefix = printable_prefix(peer_id)
    return prefix if len(prefix) >= _MIN_PREFIX_LENGTH else "unknown"


def printable_prefix(peer_id: bytes) -> str:
    """The leading printable characters, at most eight: a prefix for an allow-list or deny-list of clients."""
    prefix = peer_id[:_PREFIX_LENGTH]
    length = next((at for at, byte in enumerate(prefix) if not 0x20 < byte < 0x7F), len(prefix))
    return prefix[:length].decode("ascii")


def secret_of(key: bytes, peer_id: PeerId) -> bytes:
    """The ``key`` of an announce, in one form over HTTP and UDP; empty if it can be derived from the peer id. A derived
    key is no secret from other peers: aria2 sends the last 8 bytes of its peer id, anacrolix/torrent bytes 16 to 20 as
    a signed integer. UDP carries a number, which clients write in hex over HTTP, in either case; 0 is none. The first
    64 bytes of a key count."""
    # partition() takes half the time of find(), and a fourth of that of `in`.
    if not key or peer_id.partition(key)[1]:
        return b""
    if len(key) == _USUAL_LENGTH and not key.isdigit():
        try:
            return b"" if peer_id.partition(unhexlify(key))[1] else key.upper()
        except ValueError:  # perhaps a negative number
            pass
    if hexlify(peer_id).find(key.lower()) >= 0:
        return b""
    if _INTEGER(key):
        four = (int(key) & 0xFFFFFFFF).to_bytes(4, "big")
        if four == b"\0\0\0\0" or peer_id.find(four) >= 0 or peer_id.find(four[::-1]) >= 0:
            return b""
    return key.upper().rjust(8, b"0") if _HEX(key) else key[:_MAX_LENGTH]


def _single_digits(version: str) -> str:
    """Major, minor, patch, and a fourth unless it is 0 or the letter of a build: ``20B0`` is 2.0.11."""
    numbers = [str(int(digit, 36)) for digit in version if digit.isalnum()]
    return ".".join(numbers if version[3] in "123456789" else numbers[:3])


def _two_numbers(version: str) -> str:
    return f"{int(version[:2])}.{int(version[2:])}" if version.isdigit() else _single_digits(version)


def _number_and_hundredths(version: str) -> str:
    return f"{int(version[:2])}.{version[2:]}" if version.isdigit() else _single_digits(version)


def _transmission(version: str) -> str:
    """``2940`` is 2.94; since 4.0 each digit is a number."""
    return f"{version[0]}.{version[1:3]}" if version[:3].isdigit() and version < "4" else _single_digits(version)


_VERSION_STYLES: dict[str, Callable[[str], str]] = {
    "BC": _number_and_hundredths,
    "CD": _two_numbers,
    "TR": _transmission,
    "WD": _two_numbers,
    "WW": _two_numbers,
}


def _azureus(match: re.Match[bytes]) -> str:
    code, version = match[1].decode(), match[2].decode()
    return f"{_AZUREUS_NAMES.get(code, code)} {_VERSION_STYLES.get(code, _single_digits)(version)}".rstrip()


def _mainline(match: re.Match[bytes]) -> str:
    return f"{_MAINLINE_NAMES[match[1]]} {b'.'.join(match.groups()[1:]).decode()}"


def _shadow(match: re.Match[bytes]) -> str:
    return f"{_SHADOW_NAMES[match[1]]} {'.'.join(str(_SHADOW_DIGITS.index(digit)) for digit in match[2])}"


_STYLES: tuple[tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], str]], ...] = (
    # -, two letters, four digits of a version, -: the style of most programs.
    (re.compile(rb"-([A-Za-z0-9~]{2})([0-9A-Za-z.-]{4})-"), _azureus),
    # M7-10-1--, and aria2's A2-1-36-0-.
    (re.compile(rb"(A2-|[MQ])(\d{1,3})-(\d{1,3})-(\d{1,3})-"), _mainline),
    (re.compile(rb"TIX(\d\d)(\d\d)-"), lambda match: f"Tixati {int(match[1])}.{match[2].decode()}"),
    (re.compile(rb"-ML(\d\.\d\.\d)"), lambda match: f"MLdonkey {match[1].decode()}"),
    (re.compile(rb"(?:exbc|FUTB)(.)(.)", re.DOTALL), lambda match: f"BitComet {match[1][0]}.{match[2][0]:02d}"),
    # A letter, up to five base-64 digits of a version, at least three dashes: T03I-----.
    (re.compile(rb"([AOQRSTU])([0-9A-Za-z.]{3,5})-*---"), _shadow),
)
"""How programs write their names, and the name of what matches."""
