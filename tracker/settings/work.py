"""Settings of work distribution: the listener for claimants."""

from typing import Annotated

from pydantic import AfterValidator, Field

from tracker.settings.types import ListenAddress, Section

INFO_HASH = "{info_hash}"


def _torrent_url(value: str) -> str:
    if not value:
        return value
    head, name, rest = value.partition(INFO_HASH)
    if not name or not head.startswith(("http://", "https://")) or any(mark in head + rest for mark in '{}<>" '):
        raise ValueError(f"must be an http:// or https:// URL with {INFO_HASH} in it")
    return value


TorrentUrl = Annotated[str, AfterValidator(_torrent_url)]


class WorkSettings(Section):
    """Work distribution: the listener for claimants, who ask for torrents to seed or for other items."""

    listen: tuple[ListenAddress, ...] = Field(
        (),
        description="Addresses where claimants ask for work, written like `TRACKER_HTTP__LISTEN`. Empty: off. The port "
        "speaks plain HTTP: put a proxy with TLS in front of it if claimants send passkeys over the internet.",
    )
    default: Annotated[str, Field(pattern=r"^[-_0-9A-Za-z]{0,30}$")] = Field(
        "",
        description="The project that also answers paths without a project's name, such as `/request` and `/done`, for "
        "clients of ArchiveTeam's universal-tracker. Empty: none.",
    )
    legacy_status: bool = Field(
        False,
        description="Answer claims above the project's rate with status 420 instead of 429, as clients of "
        "ArchiveTeam's universal-tracker expect.",
    )
    torrent_url: TorrentUrl = Field(
        "",
        description="Where claimants download a .torrent file: a URL in which `{info_hash}` stands for its 40 hex "
        "digits. Empty: they get a magnet link only.",
    )
