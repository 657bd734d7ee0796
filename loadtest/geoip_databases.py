"""Small GeoIP databases for tests, in the formats of MaxMind and DB-IP."""

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mmdb_writer import MMDBWriter, TreeWriter
from netaddr import IPSet

from tracker.geoip import COUNTRY_NAMES

Record = Mapping[str, Any]
Networks = Mapping[str, Any]
"""Records by network, as in ``{"192.0.2.0/24": LONDON}``; the smallest of overlapping networks applies."""


def record(country: str = "", subdivision: str = "", city: str = "", postcode: str = "") -> dict[str, Any]:
    """A record as in GeoLite2-City; empty parts are left out, as there."""
    parts = {
        "continent": {"code": "EU", "names": {"en": "Europe"}},
        "country": country
        and {"iso_code": country, "names": {"de": f"{country} auf Deutsch", "en": COUNTRY_NAMES[country]}},
        "registered_country": {"iso_code": "FR", "names": {"en": "France"}},
        "subdivisions": subdivision and [{"iso_code": subdivision, "names": {"en": f"the state {subdivision}"}}],
        "city": city and {"geoname_id": 1, "names": {"de": f"{city}stadt", "en": city}},
        "postal": postcode and {"code": postcode},
        "location": {"latitude": 51.5, "longitude": -0.1, "time_zone": "Europe/London"},
    }
    return {name: part for name, part in parts.items() if part}


def dbip_record(country: str, subdivision: str, city: str) -> dict[str, Any]:
    """A record as in DBIP-City-Lite: subdivisions have no code, and there are no postcodes."""
    return {
        "continent": {"code": "EU", "geoname_id": 6255148, "names": {"en": "Europe"}},
        "country": {
            "geoname_id": 1,
            "is_in_european_union": True,
            "iso_code": country,
            "names": {"en": COUNTRY_NAMES[country]},
        },
        "subdivisions": [{"names": {"en": subdivision}}, {"names": {"en": f"a part of {subdivision}"}}],
        "city": {"names": {"en": city}},
        "location": {"latitude": 51.05, "longitude": 13.74},
    }


LONDON = MappingProxyType(record("GB", "ENG", "London", "SW1A"))
SPRINGFIELD = MappingProxyType(record("US", "IL", "Springfield", "62701"))
DRESDEN = MappingProxyType(dbip_record("DE", "Saxony", "Dresden"))
NO_CODE = MappingProxyType({"country": {"names": {"en": "Atlantis"}}, "city": {"names": {"en": "Poseidonis"}}})
"""A country without an ISO 3166-1 code."""

CITIES: Networks = MappingProxyType(
    {
        "192.0.2.0/24": LONDON,
        "198.51.100.0/24": SPRINGFIELD,
        "203.0.113.0/24": NO_CODE,
        "2001:db8:1::/48": LONDON,
        "2001:db8:2::/48": SPRINGFIELD,
    }
)
"""Default records. Documentation addresses, so that nothing is claimed of real ones."""


def make_city(
    path: Path,
    networks: Networks = CITIES,
    *,
    database_type: str = "GeoLite2-City",
    built: float | None = None,
    ip_version: int = 6,
) -> Path:
    """Writes a database and moves it to ``path``, as geoipupdate does. ``built`` is in epoch seconds (now)."""
    writer = MMDBWriter(
        ip_version, database_type, ["en"], "made by a test", ipv4_compatible=ip_version == 6, int_type="u32"
    )
    by_size = sorted(networks.items(), key=lambda item: int(item[0].rpartition("/")[2]))
    for network, content in by_size:
        writer.insert_network(IPSet([network]), _plain(content))
    meta = {**writer._build_meta(), "build_epoch": int(time.time() if built is None else built)}
    fresh = path.with_name(f"{path.name}.new")
    TreeWriter(writer.tree, meta, writer.int_type, writer.float_type).write(str(fresh))
    return fresh.replace(path)


def make_country(
    path: Path, networks: Networks = CITIES, *, database_type: str = "GeoLite2-Country", built: float | None = None
) -> Path:
    """The same with only the countries of ``networks``."""
    kept = ("continent", "country", "registered_country")
    countries = {
        network: {name: part for name, part in content.items() if name in kept} for network, content in networks.items()
    }
    return make_city(path, countries, database_type=database_type, built=built)


def _plain(content: Any) -> Any:
    """The writer supports only dict."""
    return dict(content) if isinstance(content, Mapping) else content
