"""Looks up the place of an address in a MaxMind or DB-IP database of cities or countries, with geoip2.

A lookup takes tens of microseconds, mostly to build models that are not needed here. The places of recent addresses
are cached. A record that geoip2 cannot parse counts as unknown. Use a ``GeoIP`` in one thread only: it closes a
database as soon as it is replaced.
"""

import json
import random
import re
import stat
import unicodedata
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import geoip2.database
import geoip2.errors
import geoip2.models
import maxminddb
from geoip2.records import PlaceRecord

from tracker.system.logger import Logger

CACHED_ADDRESSES = 16_384
"""Cached places by address, about 10 MB. A peer announces all of its torrents from one address."""
MAX_NAME_LENGTH = 100
MAX_CODE_LENGTH = 20
"""Characters kept of a postcode or of a subdivision's code."""
_DAMAGED = "damaged: some records cannot be read"
_INVALID = "not a MaxMind DB file, or an incomplete one"
_SAMPLED_RECORDS = 40  # about 10 ms
_SAMPLED_NETWORKS = 200  # most of them are empty
_CITIES = ("Enterprise", "City")
_PLACES = (*_CITIES, "Country")
"""Words in a database's type. The first one found selects the method of geoip2."""

COUNTRY_NAMES: dict[str, str] = json.loads(Path(__file__).with_name("country_names.json").read_text("utf-8"))
"""English names by ISO 3166-1 alpha-2 code, and XK for Kosovo, as GeoIP databases write them. tools/world_map.py makes
the list."""

Address = IPv4Address | IPv6Address
Signature = tuple[int, ...]
"""Device, inode, size, and modification times of a file; empty for a missing file."""

log = Logger("tracker.geoip")


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an address. Unknown fields are empty, but never all of them.

    ``country`` is an ISO 3166-1 alpha-2 code. ``country_name`` is its English name in the database, or else in
    ``COUNTRY_NAMES``. ``subdivision`` is the code of the largest subdivision (ISO 3166-2 without the country), or its
    English name where the database has no code. ``city`` is an English name. All are printable, in Unicode's form NFC,
    with single spaces.
    """

    country: str = ""
    subdivision: str = ""
    city: str = ""
    postcode: str = ""
    country_name: str = ""


UNKNOWN = Place(country_name="Unknown")
"""The place of users whose address the database does not have, such as private ones: a country in all lists."""


@dataclass(frozen=True, slots=True)
class Description:
    """An open database. ``built`` is None where the file has no valid build time."""

    path: Path
    database_type: str
    built: datetime | None
    cities: bool
    postcodes: bool

    def __str__(self) -> str:
        fields = "countries" + ", cities" * self.cities + ", postcodes" * self.postcodes
        age = f" of {self.built:%Y-%m-%d}" if self.built else ""
        return f"{self.database_type}{age}: {fields}"


def update_notes(path: Path) -> dict[str, Any]:
    """What the last update of a fetched database left beside it; empty if there was none. What is damaged is left out:
    ``checked`` and ``retry`` are epoch seconds, all else is text."""
    try:
        noted = json.loads(path.with_suffix(".json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in noted.items() if _is_note(name, value)} if isinstance(noted, dict) else {}


def _is_note(name: str, value: object) -> bool:
    if name in ("checked", "retry"):
        return isinstance(value, int | float) and 0 <= value < 1 << 53
    return isinstance(value, str)


class GeoIP:
    """Looks up addresses in the database at ``path``. Without a usable file every address is unknown. Each file is
    logged once. ``misses`` counts lookups of unknown addresses. ``problem`` says why the file at ``path`` is not in
    use; it is empty when the file is in use or ``path`` is None."""

    def __init__(self, path: Path | str | None) -> None:
        self.misses = 0
        self.problem = ""
        self._path = None if path is None else Path(path)
        self._database: _Database | None = None
        self._cached_find: Callable[[bytes], Place | None] | None = None
        # Files that are unusable: seen once, logged, and not to be opened again.
        self._suspect: Signature | None = None
        self._logged: Signature | None = None
        self._rejected: Signature | None = None
        self.refresh(may_be_incomplete=False)

    def lookup(self, address: bytes) -> Place | None:
        """The place of a packed address (4 or 16 bytes); None when unknown. Never raises."""
        if self._cached_find is None:
            return None
        try:
            place = self._cached_find(address)
        except Exception as error:  # noqa: BLE001  # a damaged file may raise anything
            place = None
            if self._database is not None and not self._database.damaged:
                self._database.damaged = True
                self.problem = self.problem or _DAMAGED
                kind = type(error).__name__
                log.warning("geoip database damaged; download it again", path=str(self._path), error=kind)
        if place is None:
            self.misses += 1
        return place

    def place_to_count(self, address: bytes) -> Place | None:
        """The same, but UNKNOWN for an address that the database in use does not have; None without a database."""
        return self.lookup(address) or (UNKNOWN if self._database else None)

    def use(self, path: Path | None) -> None:
        """Switches to the database at ``path``; None for none."""
        if path == self._path:
            return
        self._path, self.problem = path, ""
        self._logged = self._rejected = None
        if path is None:
            self.close()
        self.refresh(may_be_incomplete=False)

    def describe(self) -> Description | None:
        """The database in use."""
        return self._database.description if self._database else None

    def close(self) -> None:
        """Unmaps the file. All addresses are unknown until the next refresh."""
        if self._database is not None:
            self._database.reader.close()
        self._database = self._cached_find = None

    def refresh(self, *, may_be_incomplete: bool = True) -> None:
        """Opens a new or replaced file. Call this every few seconds. The previous database stays in use until a usable
        file is there. ``may_be_incomplete``: an unusable file may be half written; it is logged if unchanged at the
        next look."""
        if self._path is None:
            return
        seen = _signature(self._path)
        if self._database is not None and seen == self._database.signature:
            self._forget_problems()
            return
        if seen == self._rejected:
            return
        if self._database is not None and seen[:2] == self._database.signature[:2]:
            # Written in place: the mapping shows the new bytes, and a truncated file would crash the process.
            self.close()
        try:
            fresh = _Database(self._path, seen)
        except _Unusable as error:
            self._log_problem(seen, str(error), may_be_incomplete)
            self._rejected = seen if error.by_content and seen == self._logged else None
            return
        self.close()
        self._database = fresh
        self._cached_find = lru_cache(CACHED_ADDRESSES)(fresh.find)
        self._forget_problems()
        found = fresh.description
        built = f"{found.built:%Y-%m-%d}" if found.built else None
        has = {"cities": found.cities, "postcodes": found.postcodes}
        fields = {"path": str(found.path), "type": found.database_type, "built": built, **has}
        if found.cities:
            log.info("geoip database opened", **fields)
        else:
            log.warning("geoip database opened; it has countries only, so users are not counted by city", **fields)

    def _forget_problems(self) -> None:
        self.problem = _DAMAGED if self._database is not None and self._database.damaged else ""
        self._suspect = self._logged = self._rejected = None

    def _log_problem(self, seen: Signature, problem: str, may_be_incomplete: bool) -> None:
        self.problem = problem
        if seen == self._logged:
            return
        if may_be_incomplete and seen != self._suspect:
            self._suspect = seen
            return
        self._logged = seen
        consequence = (
            "new geoip database unusable; the previous one stays in use"
            if self._database
            else "geoip database unusable; users are not counted by place"
        )
        log.warning(consequence, path=str(self._path), problem=problem)


class _Unusable(Exception):
    """The text is the reason. An error ``by_content`` lasts until the file changes."""

    def __init__(self, text: str, *, by_content: bool = True) -> None:
        super().__init__(text)
        self.by_content = by_content


class _Database:
    """One open file."""

    def __init__(self, path: Path, signature: Signature) -> None:
        """Raises _Unusable. ``signature`` was read before: a file that has changed since is opened once more."""
        self.signature = signature
        self.damaged = False
        # Memory-mapped, and read by the C reader where it is installed.
        self.reader = _open(path, geoip2.database.Reader)
        try:
            metadata = self.reader.metadata()
            self.description = _describe(path, metadata)
            self._ipv6 = metadata.ip_version == 6
            word = next(word for word in _PLACES if word in self.description.database_type)
            self._read: Callable[[Address], geoip2.models.Country] = getattr(self.reader, word.lower())
            _sample(path, ipv6=self._ipv6)
        except Exception as error:
            self.reader.close()
            if isinstance(error, _Unusable):
                raise
            raise _Unusable(_INVALID) from None  # a damaged file may raise anything

    def find(self, packed: bytes) -> Place | None:
        """May raise any exception where the file is damaged."""
        if len(packed) not in (4, 16):
            return None
        address = ip_address(packed)
        address = getattr(address, "ipv4_mapped", None) or address
        if address.version == 6 and not self._ipv6:
            return None
        try:
            return _place(self._read(address))
        except geoip2.errors.AddressNotFoundError:
            return None


def _open(path: Path, open_database: Callable[[Path], Any]) -> Any:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
            raise _Unusable("not a regular file")
        return open_database(path)
    except OSError as error:
        raise _Unusable(error.strerror or type(error).__name__, by_content=False) from None
    except _Unusable:
        raise
    except Exception:  # noqa: BLE001  # a damaged file may raise anything
        raise _Unusable(_INVALID) from None


def _sample(path: Path, *, ipv6: bool) -> None:
    """Raises _Unusable where one of the first records, or of 40 random ones, is damaged. The C reader may crash the
    process at a map with keys that are not text, or at an unknown type. The pure Python reader, used here, survives
    them, but takes nearly 20 times as long."""
    with closing(_open(path, lambda file: maxminddb.open_database(file, maxminddb.MODE_MMAP))) as reader:
        try:
            _read_some(reader, IPv4Address, 0)
            if ipv6:
                _read_some(reader, IPv6Address, 0x20 << 120)  # 2000::/3, the only block in use
        except Exception:  # noqa: BLE001  # as in a lookup
            raise _Unusable(_DAMAGED) from None


def _read_some(reader: maxminddb.Reader, family: type[IPv4Address | IPv6Address], first: int) -> None:
    bits = family(0).max_prefixlen
    number, found = first, 0
    for _ in range(_SAMPLED_NETWORKS):
        record, prefix_length = _read(reader, family(number))
        found += record is not None
        number += 1 << (bits - prefix_length)
        if found == _SAMPLED_RECORDS or number >> bits:
            break
    chance = random.Random(0)
    for _ in range(_SAMPLED_RECORDS):
        _read(reader, family(first + chance.getrandbits(bits - 3)))


def _read(reader: maxminddb.Reader, address: IPv4Address | IPv6Address) -> tuple[object, int]:
    """The record and the length of its network's prefix."""
    try:
        record, prefix_length = reader.get_with_prefix_len(address)
    except UnicodeDecodeError:  # both readers raise it for a bad name and can continue
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
    """Raises _Unusable for a database without places. Only its type says which fields it has."""
    kind = _text(metadata.database_type, MAX_NAME_LENGTH)
    if not any(word in kind for word in _PLACES):
        raise _Unusable(f"database type {kind or '?'} has no places")
    try:
        built = datetime.fromtimestamp(metadata.build_epoch, UTC) if metadata.build_epoch else None
    except (OverflowError, OSError, TypeError, ValueError):
        built = None
    cities = any(word in kind for word in _CITIES) and not kind.startswith("DBIP-ISP")
    return Description(path, kind, built, cities, postcodes=cities and not kind.startswith("DBIP-City"))


def _place(model: geoip2.models.Country) -> Place | None:
    """The valid fields of a record. A file may break the format anywhere."""
    subdivision = city = postcode = ""
    if isinstance(model, geoip2.models.City):
        largest = model.subdivisions[0] if model.subdivisions else None
        if largest is not None:
            subdivision = _text(largest.iso_code, MAX_CODE_LENGTH) or _english(largest)
        city = _english(model.city)
        postcode = _text(model.postal.code, MAX_CODE_LENGTH)
    iso_code, name = str(model.country.iso_code), _english(model.country)
    code = iso_code.upper() if re.fullmatch("[A-Za-z]{2}", iso_code) else ""
    if code == "ZZ":  # DB-IP's country of unassigned networks
        code = name = ""
    place = Place(code, subdivision, city, postcode, name or COUNTRY_NAMES.get(code, code))
    return place if place != Place() else None


def _english(record: PlaceRecord) -> str:
    names: object = record.names
    return _text(names.get("en"), MAX_NAME_LENGTH) if isinstance(names, dict) else ""


def _text(value: object, max_length: int) -> str:
    """Cuts a text to ``max_length`` printable characters in NFC, with single spaces."""
    if not isinstance(value, str):
        return ""
    text = unicodedata.normalize("NFC", value[: 4 * max_length])
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.split())[:max_length].rstrip()
