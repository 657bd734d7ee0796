"""What program a peer id names (BEP 20), for people to read.

A peer id is what its client says: any program can claim any name. Nothing is decided from these texts,
and since a hostile client can invent endless ones they must not label counters either.
"""

import re
from collections.abc import Callable

_PREFIX_LENGTH = 8
_READABLE_ENOUGH = 3

_AZUREUS = re.compile(rb"-([A-Za-z0-9~]{2})([0-9A-Za-z.-]{4})-")
_MAINLINE = re.compile(rb"(A2-|[MQ])(\d{1,3})-(\d{1,3})-(\d{1,3})-")
_SHADOW = re.compile(rb"([AOQRSTU])([0-9A-Za-z.]{3,5})-*---")
_TIXATI = re.compile(rb"TIX(\d\d)(\d\d)-")
_MLDONKEY = re.compile(rb"-ML(\d\.\d\.\d)")
_OLD_BITCOMET = re.compile(rb"(?:exbc|FUTB)(.)(.)", re.DOTALL)

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
    """``-qB4520-…`` -> ``"qBittorrent 4.5.2"``; a program not known here keeps its two letters or its prefix.

    Total: any bytes give a short printable text, ``"unknown"`` at worst.
    """
    styles = (_azureus, _mainline, _rare, _shadow)
    return next((name for style in styles if (name := style(peer_id))), "") or _fallback(peer_id)


def printable_prefix(peer_id: bytes) -> str:
    """The leading readable characters, at most eight: what an operator would put on a list of clients."""
    prefix = peer_id[:_PREFIX_LENGTH]
    readable = next((at for at, byte in enumerate(prefix) if not 0x20 < byte < 0x7F), len(prefix))
    return prefix[:readable].decode("ascii")


def _azureus(peer_id: bytes) -> str:
    """``-``, two letters, four marks of a version, ``-``: what most programs use."""
    if not (match := _AZUREUS.match(peer_id)):
        return ""
    code, marks = match[1].decode(), match[2].decode()
    return f"{_AZUREUS_NAMES.get(code, code)} {_VERSION_STYLES.get(code, _one_mark_each)(marks)}".rstrip()


def _mainline(peer_id: bytes) -> str:
    """``M7-10-1--``, and aria2's ``A2-1-36-0-``."""
    if not (match := _MAINLINE.match(peer_id)):
        return ""
    return f"{_MAINLINE_NAMES[match[1]]} {b'.'.join(match.groups()[1:]).decode()}"


def _rare(peer_id: bytes) -> str:
    if match := _TIXATI.match(peer_id):
        return f"Tixati {int(match[1])}.{match[2].decode()}"
    if match := _MLDONKEY.match(peer_id):
        return f"MLdonkey {match[1].decode()}"
    if match := _OLD_BITCOMET.match(peer_id):
        return f"BitComet {match[1][0]}.{match[2][0]:02d}"
    return ""


def _shadow(peer_id: bytes) -> str:
    """A letter, up to five base-64 digits of a version, at least three dashes: ``T03I-----``."""
    if not (match := _SHADOW.match(peer_id)):
        return ""
    return f"{_SHADOW_NAMES[match[1]]} {'.'.join(str(_SHADOW_DIGITS.index(digit)) for digit in match[2])}"


def _fallback(peer_id: bytes) -> str:
    prefix = printable_prefix(peer_id)
    return prefix if len(prefix) >= _READABLE_ENOUGH else "unknown"


def _one_mark_each(marks: str) -> str:
    """Major, minor, patch and, unless it is 0 or a letter that marks a build, a fourth: ``20B0`` is 2.0.11."""
    numbers = [str(int(mark, 36)) for mark in marks if mark.isalnum()]
    return ".".join(numbers if marks[3] in "123456789" else numbers[:3])


def _two_marks_each(marks: str) -> str:
    return f"{int(marks[:2])}.{int(marks[2:])}" if marks.isdigit() else _one_mark_each(marks)


def _two_marks_and_hundredths(marks: str) -> str:
    return f"{int(marks[:2])}.{marks[2:]}" if marks.isdigit() else _one_mark_each(marks)


def _transmission(marks: str) -> str:
    """``2940`` is 2.94; since 4.0 each mark stands for itself."""
    return f"{marks[0]}.{marks[1:3]}" if marks[:3].isdigit() and marks < "4" else _one_mark_each(marks)


_VERSION_STYLES: dict[str, Callable[[str], str]] = {
    "BC": _two_marks_and_hundredths,
    "CD": _two_marks_each,
    "TR": _transmission,
    "WD": _two_marks_each,
    "WW": _two_marks_each,
}
