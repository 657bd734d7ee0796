"""Where an address is in the world, read from a GeoIP2 database: MaxMind's or DB-IP's, of cities or of countries.

Records are read with maxminddb, geoip2's own reader, rather than with geoip2's models: those cost four times as
much, refuse databases by their type's name, and raise where one field of a record is odd; here the rest of such a
record still counts. One thread uses a ``GeoIP``: a database is closed as soon as it is replaced.
"""

import random
import stat
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import maxminddb
import structlog

CACHED_ADDRESSES = 16_384
"""Places kept by address, about 10 MB: a peer announces all of its torrents from one address."""
NAME_LENGTH = 100
CODE_LENGTH = 20
"""Characters that are kept of a name, and of a postcode or a subdivision's code."""
_DAMAGED = "it is damaged: some of its records cannot be read"
_BROKEN = "it is no MaxMind DB file, or only a part of one"
_SAMPLE = 40  # records, about 10 ms
_STEPS = 200  # networks, most of them empty
_CITIES = ("City", "Enterprise", "Location")
_PLACES = (*_CITIES, "Country", "DBIP-ISP")
_UNKNOWN_COUNTRY = "ZZ"  # how DB-IP fills what nobody was given

Signature = tuple[int, ...]
"""Device and inode, then what changes when a file is written; empty for a file that is not there."""

log = structlog.get_logger("tracker.geoip")


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of an address; what is not is empty, but never everything.

    ``country`` is an ISO 3166-1 alpha-2 code. ``subdivision`` is the code of the largest one (ISO 3166-2 without
    the country) or, where the database has none, its English name. ``city`` is an English name. All are
    printable, in Unicode's form NFC, with single spaces.
    """

    country: str = ""
    subdivision: str = ""
    city: str = ""
    postcode: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """An open database, for people. ``built`` is None when the file does not say it properly."""

    path: Path
    database_type: str
    built: datetime | None
    cities: bool
    postcodes: bool

    def __str__(self) -> str:
        what = "countries" + ", cities" * self.cities + ", postcodes" * self.postcodes
        age = f" of {self.built:%Y-%m-%d}" if self.built else ""
        return f"{self.database_type}{age}: {what}"


class GeoIP:
    """Looks addresses up in the database at ``path``; None, a missing and a broken file know no address.

    Each file is told of in one log line, whatever it is. ``misses`` counts lookups of addresses that the database
    does not know; ``problem`` says why the file at ``path`` is not in use (empty when it is, or none is named).
    """

    def __init__(self, path: Path | str | None) -> None:
        self.misses = 0
        self.problem = ""
        self._path = None if path is None else Path(path)
        self._database: _Database | None = None
        self._find: Callable[[bytes], Place | None] | None = None
        self._doubted: Signature | None = None
        self._told: Signature | None = None
        self._useless: Signature | None = None
        self._look(patient=False)

    def lookup(self, address: bytes) -> Place | None:
        """The place of a packed address (4 or 16 bytes); None when unknown. Never raises."""
        if self._find is None:
            return None
        try:
            place = self._find(address)
        except Exception as error:  # noqa: BLE001  # whatever a damaged file provokes, the address is unknown
            self._tell_of_damage(error)
            place = None
        if place is None:
            self.misses += 1
        return place

    def refresh(self) -> None:
        """Notice a replaced, appeared or vanished file; to be called every few seconds.

        A file that cannot be used is complained of when it is found unchanged a second time: the first time it
        may be half written. Until a good one is there, the database from before stays in use.
        """
        self._look(patient=True)

    def use(self, path: Path | None) -> None:
        """From now on the database at ``path``; None for none."""
        if path == self._path:
            return
        self._path, self.problem = path, ""
        self._told = self._useless = None
        if path is None:
            self.close()
        self._look(patient=False)

    def describe(self) -> Description | None:
        """The database in use."""
        return self._database.description if self._database else None

    def close(self) -> None:
        """Unmap the file. Lookups know nothing from here on, until a refresh."""
        if self._database is not None:
            self._database.close()
        self._database = self._find = None

    def _look(self, *, patient: bool) -> None:
        if self._path is None:
            return
        seen = _signature(self._path)
        if self._database is not None and seen == self._database.signature:
            self._forget_problems()
            return
        if seen == self._useless:
            return
        if self._database is not None and seen[:2] == self._database.signature[:2]:
            # Written in place: the mapping shows the new bytes, or ends the process where the file was cut.
            self.close()
        try:
            fresh = _Database(self._path, seen)
        except _Unusable as error:
            self._tell_of_problem(seen, str(error), patient)
            self._useless = seen if error.by_content and seen == self._told else None
            return
        self.close()
        self._database = fresh
        self._find = lru_cache(CACHED_ADDRESSES)(fresh.find)
        self._forget_problems()
        _tell_of(fresh.description)

    def _forget_problems(self) -> None:
        self.problem = _DAMAGED if self._database is not None and self._database.damaged else ""
        self._doubted = self._told = self._useless = None

    def _tell_of_problem(self, seen: Signature, problem: str, patient: bool) -> None:
        self.problem = problem
        if seen == self._told:
            return
        if patient and seen != self._doubted:
            self._doubted = seen
            return
        self._told = seen
        consequence = (
            "the geoip database cannot be replaced: the one from before stays in use"
            if self._database
            else "no geoip database: nobody is counted by place until it is there"
        )
        log.warning(consequence, path=str(self._path), problem=problem)

    def _tell_of_damage(self, error: Exception) -> None:
        if self._database is not None and not self._database.damaged:
            self._database.damaged = True
            self.problem = self.problem or _DAMAGED
            kind = type(error).__name__
            log.warning("the geoip database is damaged: fetch it again", path=str(self._path), error=kind)


class _Unusable(Exception):
    """The text says why. What is wrong ``by_content`` stays so until the file changes."""

    def __init__(self, text: str, *, by_content: bool = True) -> None:
        super().__init__(text)
        self.by_content = by_content


class _Database:
    """One open file."""

    def __init__(self, path: Path, signature: Signature) -> None:
        """Raises _Unusable. ``signature`` was taken before: a file that changed since is opened once more."""
        self.signature = signature
        self.damaged = False
        # Memory-mapped, and read by the C reader where there is one.
        self._reader = _open(path, maxminddb.MODE_AUTO)
        try:
            metadata = self._reader.metadata()
            self.description = _describe(path, metadata)
            self._ipv6 = metadata.ip_version == 6
            _sample(path, ipv6=self._ipv6)
        except Exception as error:
            self._reader.close()
            if isinstance(error, _Unusable):
                raise
            raise _Unusable(_BROKEN) from None  # whatever a mangled file provokes

    def close(self) -> None:
        self._reader.close()

    def find(self, packed: bytes) -> Place | None:
        """May raise anything where the file is damaged."""
        address: IPv4Address | IPv6Address
        if len(packed) == 4:
            address = IPv4Address(packed)
        elif len(packed) == 16:
            address = IPv6Address(packed)
            address = address.ipv4_mapped or address
        else:
            return None
        if address.version == 6 and not self._ipv6:
            return None
        return _place(self._reader.get(address))


def _open(path: Path, mode: int) -> maxminddb.Reader:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise _Unusable("it is not a file")
        return maxminddb.open_database(path, mode)
    except OSError as error:
        raise _Unusable(error.strerror or type(error).__name__, by_content=False) from None
    except _Unusable:
        raise
    except Exception:  # noqa: BLE001  # a mangled file provokes more than InvalidDatabaseError
        raise _Unusable(_BROKEN) from None


def _sample(path: Path, *, ipv6: bool) -> None:
    """Raises _Unusable where some of the records are damaged: the first ones are read, and some from everywhere.

    The C reader does not survive all damage: it may end the process at a map whose keys are no texts, or at a type
    that does not exist. Python's own reader, used here, does, but takes nearly 20 times as long.
    """
    with closing(_open(path, maxminddb.MODE_MMAP)) as reader:
        try:
            _read_some(reader, IPv4Address, 0)
            if ipv6:
                _read_some(reader, IPv6Address, 0x20 << 120)  # 2000::/3, all that has been given out
        except Exception:  # noqa: BLE001  # as in a lookup
            raise _Unusable(_DAMAGED) from None


def _read_some(reader: maxminddb.Reader, family: type[IPv4Address | IPv6Address], first: int) -> None:
    bits = family(0).max_prefixlen
    number, found = first, 0
    for _ in range(_STEPS):
        record, prefix_length = _read(reader, family(number))
        found += record is not None
        number += 1 << (bits - prefix_length)
        if found == _SAMPLE or number >> bits:
            break
    chance = random.Random(0)
    for _ in range(_SAMPLE):
        _read(reader, family(first + chance.getrandbits(bits - 3)))


def _read(reader: maxminddb.Reader, address: IPv4Address | IPv6Address) -> tuple[object, int]:
    """The record and the length of its network's prefix."""
    try:
        record, prefix_length = reader.get_with_prefix_len(address)
    except UnicodeDecodeError:  # both readers say so of a bad name, and go on
        return {}, 24 if address.version == 4 else 48
    _check_keys(record)
    return record, prefix_length


def _check_keys(value: object) -> None:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            _check_keys(part)


def _signature(path: Path) -> Signature:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _describe(path: Path, metadata: Any) -> Description:
    """Raises _Unusable for a database of anything but places. Which fields there are, only its type tells."""
    kind = _text(metadata.database_type, NAME_LENGTH)
    if not any(word in kind for word in _PLACES):
        raise _Unusable(f"it is a database of type {kind or '?'}, which knows no places")
    try:
        built = datetime.fromtimestamp(metadata.build_epoch, UTC) if metadata.build_epoch else None
    except (OverflowError, OSError, TypeError, ValueError):
        built = None
    cities = any(word in kind for word in _CITIES) and not kind.startswith("DBIP-ISP")
    return Description(path, kind, built, cities, postcodes=cities and not kind.startswith("DBIP-City"))


def _tell_of(database: Description) -> None:
    about = {
        "path": str(database.path),
        "type": database.database_type,
        "built": f"{database.built:%Y-%m-%d}" if database.built else None,
        "cities": database.cities,
        "postcodes": database.postcodes,
    }
    if database.cities:
        log.info("geoip database opened", **about)
    else:
        log.warning("geoip database opened: it knows countries only, so nobody is counted by city", **about)


def _place(record: object) -> Place | None:
    """Reads what is there and of the right kind: nothing says that a file keeps to the format."""
    if not isinstance(record, dict):
        return None
    subdivisions = record.get("subdivisions")
    largest = subdivisions[0] if isinstance(subdivisions, list) and subdivisions else None
    subdivision = largest if isinstance(largest, dict) else {}
    place = Place(
        _country(_part(record, "country").get("iso_code")),
        _text(subdivision.get("iso_code"), CODE_LENGTH) or _english(subdivision),
        _english(_part(record, "city")),
        _text(_part(record, "postal").get("code"), CODE_LENGTH),
    )
    return place if place != _NOWHERE else None


_NOWHERE = Place()


def _part(record: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _english(part: Mapping[str, object]) -> str:
    return _text(_part(part, "names").get("en"), NAME_LENGTH)


def _country(code: object) -> str:
    if not isinstance(code, str) or len(code) != 2 or not (code.isascii() and code.isalpha()):
        return ""
    return "" if code.upper() == _UNKNOWN_COUNTRY else code.upper()


def _text(value: object, longest: int) -> str:
    """At most ``longest`` characters that can be printed and written in UTF-8; one name has one spelling."""
    if not isinstance(value, str):
        return ""
    text = unicodedata.normalize("NFC", value[: 4 * longest])
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.split())[:longest].rstrip()
