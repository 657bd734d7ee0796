"""Settings of the site whose torrents and users the tracker serves."""

import re
from ipaddress import ip_network
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, SecretStr

from tracker.settings.types import ListenAddress, Network, Section

MIN_KEY_LENGTH = 32
_KEY = re.compile(rf"[-_0-9A-Za-z]{{{MIN_KEY_LENGTH},}}", re.ASCII)


def _key(value: SecretStr) -> SecretStr:
    if not _KEY.fullmatch(value.get_secret_value()):
        raise ValueError(f"must have at least {MIN_KEY_LENGTH} letters, digits, _ or -")
    return value


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ValueError("is no time zone, such as UTC or Europe/Berlin") from error
    return name


Key = Annotated[SecretStr, AfterValidator(_key)]


class SiteSettings(Section):
    """The calls that a site's own code makes, as UNIT3D and Gazelle send them, and the site's database."""

    listen: tuple[ListenAddress, ...] = Field(
        (),
        description="Addresses where the site's calls are answered, written like `TRACKER_HTTP__LISTEN`. Empty: off. "
        "The port speaks plain HTTP: use a loopback address or a unix socket.",
    )
    name: str = Field("site", pattern=r"^[-_.0-9A-Za-z]{1,64}$", description="The site's name in the audit log.")
    key: Key | None = Field(
        None,
        description="The key of its calls, at least 32 letters, digits, `_` or `-`: UNIT3D's `TRACKER_KEY`, Gazelle's "
        "`TRACKER_SECRET`.",
    )
    report_key: Key | None = Field(
        None, description="The key of Gazelle's reports, written like `key`: `TRACKER_REPORTKEY`. Unset: no reports."
    )
    allowed: tuple[Network, ...] = Field(
        (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        description="Networks from which these calls are accepted. A unix socket is always one of them.",
    )
    database: SecretStr | None = Field(
        None,
        description="The site's own database, whose tables the tracker keeps ([sync.md](sync.md)): "
        "`mysql://user:password@host/database`, also for MariaDB, or `postgresql://…`. A unix socket: "
        "`mysql://user:password@localhost/database?unix_socket=/path`. Needs `TRACKER_CHANGES__MAX_ENTRIES` and "
        "`TRACKER_CHANGES__UPDATES_SECONDS`. "
        "Unset: off.",
    )
    mapping: Annotated[str, Field(min_length=1)] = Field(
        "unit3d",
        description="Which tables and columns it has: `unit3d`, `gazelle`, `nexusphp`, or the path of a mapping file.",
    )
    time_zone: Annotated[str, AfterValidator(_zone)] = Field(
        "UTC",
        description="Time zone of dates without one in the site's tables (MySQL's `DATETIME`), such as "
        "`Asia/Shanghai`: NexusPHP's `TIMEZONE`. UNIT3D and Gazelle write UTC.",
    )
    sync_in_tracker: bool = Field(
        True, description="Sync in the tracker's own process. false: only `tracker sync run` does."
    )
    sync_seconds: float = Field(3.0, ge=0.5, le=60, description="How often what has changed is written (s).")
    full_pass_hour: int = Field(
        4, ge=0, le=23, description="From which hour on all rows are compared and repaired each day (UTC)."
    )
