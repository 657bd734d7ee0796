"""/users/{user_id}/freeleech: torrents whose download does not count for a user."""

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import End, InfoHashText, Moment, Page, Paged, UserIdText
from tracker.bittorrent import parse_info_hash
from tracker.errors import existing
from tracker.operations.torrents import counting_torrent
from tracker.operations.users import freeleech_tokens
from tracker.store.torrents.torrents import Torrent

endpoints = Endpoints("freeleech", "Freeleech tokens: downloads of one torrent that do not count for one user.")


class FreeleechNew(Body):
    """A freeleech token."""

    until: End | None = Field(None, description="When it ends (epoch s), in the future; without it, never.")


class FreeleechToken(Reply):
    """A torrent whose download does not count for the user."""

    torrent_id: str
    info_hash: str | None = Field(description="null if the torrent was removed.")
    name: str
    until: Moment | None = Field(description="null: never.")


class FreeleechPage(Page[FreeleechToken]):
    """A page of a user's freeleech tokens, the next to end first."""


@endpoints.get("/users/{user_id}/freeleech", "List a user's freeleech tokens")
async def list_all(call: Call, user_id: UserIdText, query: Paged) -> FreeleechPage:
    """Those that have not ended."""
    existing(await call.store.users.passkey_of(user_id), "user")
    rows = await freeleech_tokens(call.store, user_id, query.offset, query.limit)
    total = await call.store.freeleech.count(user_id)
    return FreeleechPage.of(query, [FreeleechToken(**row) for row in rows], total)


@endpoints.put("/users/{user_id}/freeleech/{info_hash}", "Give a freeleech token", "freeleech.give")
async def give(call: Call, user_id: UserIdText, info_hash: InfoHashText, body: FreeleechNew) -> FreeleechToken:
    """Changes the end of a token that the user has. A user has at most 10,000. One for the v2 half of a hybrid torrent
    is given for its v1 half."""
    torrent = await _known(call, user_id, info_hash)
    await call.store.freeleech.give(user_id, torrent.torrent_id, body.until)
    return FreeleechToken(
        torrent_id=torrent.torrent_id, info_hash=torrent.info_hash.hex(), name=torrent.name, until=body.until
    )


@endpoints.delete(
    "/users/{user_id}/freeleech/{info_hash}",
    "Take back a freeleech token",
    "freeleech.revoke",
    missing="Unknown user, torrent or token.",
)
async def take_back(call: Call, user_id: UserIdText, info_hash: InfoHashText) -> None:
    torrent = await _known(call, user_id, info_hash)
    existing(await call.store.freeleech.take_back(user_id, torrent.torrent_id), "token")


async def _known(call: Call, user_id: str, info_hash: str) -> Torrent:
    """The torrent that counts for users. Raises NotFound."""
    existing(await call.store.users.passkey_of(user_id), "user")
    return await counting_torrent(call.store, parse_info_hash(info_hash))
