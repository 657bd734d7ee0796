"""``tracker geoip …``: lookups in the GeoIP database, without a store."""

import ipaddress
from typing import Annotated

from typer import Argument, Exit

from tracker.cli.commands import AsJson, group, load_settings
from tracker.cli.terminal import Listing, Row, columns, complain, fitted, say
from tracker.errors import ClientError
from tracker.geoip import GeoIP

_FIELDS = ("country", "subdivision", "city", "postcode")

geoip = group("Look up the location of addresses.")


@geoip.command("lookup")
def look_up(
    addresses: Annotated[
        list[str], Argument(metavar="ADDRESS…", help="IPv4 or IPv6, such as 192.0.2.1 or 2001:db8::1.")
    ],
    as_json: AsJson = False,
) -> None:
    """Look up addresses in the database of TRACKER_GEOIP__DATABASE; unknown fields are empty."""
    path = load_settings().geoip_file
    if path is None:
        raise ClientError("no GeoIP database: set TRACKER_GEOIP__DATABASE")
    database = GeoIP(path)
    if database.describe() is None:
        raise ClientError(f"{path}: {database.problem}")
    rows: list[Row] = []
    wrong: list[str] = []
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            wrong.append(text)
            continue
        place = database.lookup(address.packed)
        rows.append({"address": str(address), **{name: getattr(place, name, "") or None for name in _FIELDS}})
    if rows:
        shown = [fitted("address", rows), *columns("country:7 subdivision city postcode:10")]
        Listing(shown, as_json=as_json).page(rows)
    for text in wrong:
        complain(f"{text}: not an IPv4 or IPv6 address")
    if wrong:
        raise Exit(1)


@geoip.command("update")
def update() -> None:
    """Fetch the database now, if TRACKER_GEOIP__DATABASE names a source and there is a newer one."""
    import asyncio  # noqa: PLC0415  # slow imports that only this command needs
    import time  # noqa: PLC0415

    from tracker.workers.geoip_update import update_now  # noqa: PLC0415

    settings = load_settings()
    if asyncio.run(update_now(settings.geoip, settings.geoip_file, time.time())):
        say(f"{settings.geoip.source} is updated: {GeoIP(settings.geoip_file).describe()}")
    else:
        say(f"{settings.geoip.source} has nothing newer")
