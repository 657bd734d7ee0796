"""Settings of user accounts, and of the client programs that are served."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.bittorrent import Accounts
from tracker.settings.types import MAX_BYTES, MAX_SECONDS, Reloaded, Section
from tracker.wire.announce_path import PasskeyForms


class UserSettings(Section):
    """User accounts: passkeys, totals per user, hit-and-runs."""

    private: Accounts = "off"
    """Whether announces need a user's passkey in the URL. `required` refuses those without (a private tracker);
    `optional` credits an announce with a passkey to the user of the passkey, and serves others anonymously; `off`
    ignores passkeys."""
    passkey_after_announce: bool = True
    """Also read passkeys from `/announce/<passkey>` and `/scrape/<passkey>`. Without effect while `private` is
    `off`."""
    passkey_parameter: bool = True
    """Also read passkeys from the query: `/announce?passkey=<passkey>` and `/scrape?passkey=<passkey>`. Without effect
    while `private` is `off`."""
    peer_memory_seconds: Reloaded[int] = Field(2_592_000, ge=60, le=MAX_SECONDS)
    """How long a user's departed peer is remembered."""
    hnr_min_bytes: Reloaded[Annotated[int, Field(ge=0, le=MAX_BYTES)]] = 1_048_576
    """A user who downloaded more than this of a torrent has to stay on it for `hnr_threshold_seconds` in total."""
    hnr_threshold_seconds: Reloaded[Annotated[int, Field(ge=0, le=MAX_SECONDS)]] = 259_200
    """A user whose last peer leaves such a torrent with less total time than this gets a hit-and-run."""
    hnr_time: Reloaded[Literal["total", "seed"]] = "total"
    """The time that counts towards `hnr_threshold_seconds`: as a leecher and as a seeder (`total`), or as a seeder only
    (`seed`)."""
    hnr_min_percent: Reloaded[Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]] = 0
    """A user who downloaded no more than this part of a torrent gets no hit-and-run. For torrents of unknown size only
    `hnr_min_bytes` counts."""
    hnr_ratio: Reloaded[Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]] = 0
    """A user who uploaded this many times the downloaded bytes on the torrent gets no hit-and-run, whatever the time.
    0: the ratio does not count."""
    hnr_grace_seconds: Reloaded[Annotated[int, Field(ge=0, le=MAX_SECONDS)]] = 0
    """How long a user may leave such a torrent before it becomes a hit-and-run. Until then it is listed as pending
    (`tracker user pending`)."""
    max_credit_bytes_per_second: Reloaded[Annotated[int, Field(ge=1, le=MAX_BYTES)]] = 1_250_000_000
    """Maximum upload and download rate credited to a user on one torrent: 10 Gbit/s. The excess is not credited; the
    user's `credit_cut` counts it."""
    max_user_credit_bytes_per_second: Reloaded[Annotated[int, Field(ge=1, le=MAX_BYTES)]] = 1_250_000_000
    """The same over all torrents of a user. Unused credit is saved for up to two announce intervals."""

    max_peers_per_torrent: Reloaded[Annotated[int, Field(ge=0, le=100)]] = 0
    """How many peers a user may have in one torrent. When one more joins, the user's peer that has been silent longest
    is removed. 0: any number."""
    max_downloads: Reloaded[Annotated[int, Field(ge=0, le=1_000_000)]] = 0
    """How many torrents a user may download at once. Further ones are refused until one is complete or stopped. A user
    may have a limit of their own (`tracker user edit --max-downloads`). 0: any number."""
    beyond_max_downloads: Literal["mapping", "refusal", "warning"] = "mapping"
    """How a download beyond `max_downloads` is answered: `refusal`, or `warning`: without peers and with a warning.
    `mapping`: as `slots` of `TRACKER_SITE__MAPPING` says, where `TRACKER_SITE__DATABASE` is set (UNIT3D: `warning`);
    else `refusal`. In both cases the peer joins with a later announce, when the user may download one more."""
    own_peers: Reloaded[bool] = False
    """Whether replies to a user may contain the user's own other peers."""
    min_credit_interval_seconds: Reloaded[Annotated[int, Field(ge=0, le=86400)]] = 0
    """An announce of a user's peer sooner than this after its last one is neither credited nor answered with peers. Its
    bytes count with the next announce that is due. Capped at the announce interval."""
    peer_lists_at_once: Reloaded[Annotated[int, Field(ge=0, le=1_000_000)]] = 300
    """How many joins and early announces of a user are answered with peers at once. Seeders have a quarter of this and
    of the next two. 0: no limit."""
    peer_lists_per_minute: Reloaded[Annotated[int, Field(ge=0, le=1_000_000)]] = 60
    """How many more are answered with peers each minute, once those are used up. 0: no limit."""
    peer_lists_per_day: Reloaded[Annotated[int, Field(ge=0, le=1_000_000_000)]] = 20_000
    """How many joins and early announces of a user are answered with peers in a day. 0: no limit."""

    @property
    def passkey_forms(self) -> PasskeyForms:
        """Where announce URLs may carry a passkey."""
        if self.private == "off":
            return PasskeyForms()
        return PasskeyForms(self.private, self.passkey_after_announce, self.passkey_parameter)


class ClientSettings(Section):
    """Client programs."""

    allow_list: Reloaded[bool] = False
    """Serve only clients whose peer id begins with an allowed prefix (`tracker client allow`)."""
    deny_list: Reloaded[bool] = False
    """Refuse clients whose peer id begins with a denied prefix (`tracker client deny`), even if the allow-list permits
    them."""
    count_software: bool = True
    """Count the client programs that join and those that are refused, per month and for all time (`tracker client
    seen`)."""
