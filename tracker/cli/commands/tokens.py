"""``tracker token …`` and ``tracker sign-in-link``: who may use the admin port."""

from collections.abc import Sequence
from typing import Annotated

import typer

from tracker import terminal
from tracker.commands import AsJson, Config, group, with_stores
from tracker.settings import AdminSettings
from tracker.settings_sources import load
from tracker.store.tokens import LINK_SECONDS, NAME_LENGTH, Token
from tracker.stores import Stores
from tracker.terminal import MOMENT, Column, Listing, Moment, Row, announce_urls, say, say_json

Who = Annotated[str, typer.Argument(metavar="TOKEN", help="A token's name or id.")]

tokens = group("Tokens for the admin port: its API, its metrics and its dashboard.")


@tokens.command("create")
def create_token(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What uses it, such as `prometheus`; no two have the same.")
    ],
    read_only: Annotated[bool, typer.Option("--read-only", help="May look, and change nothing.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Make a token and print it, once: only its hash is kept."""

    async def work(stores: Stores) -> None:
        token, text = await stores.tokens.create(name, "read" if read_only else "full")
        terminal.describe({**_row(token), "token": text}, as_json=as_json)

    with_stores(config, work)


@tokens.command("list")
def list_tokens(as_json: AsJson = False, config: Config = None) -> None:
    """List tokens, without their secrets, and when each was last used, to the minute."""
    columns = [Column("id", 12), Column("scope", 5), Column("created", MOMENT), Column("last_used", MOMENT)]
    listing = Listing([*columns, Column("name", NAME_LENGTH)], as_json=as_json)

    async def work(stores: Stores) -> None:
        listing.page(_row(token) for token in await stores.tokens.list())

    with_stores(config, work)


def _row(token: Token) -> Row:
    return {
        "id": token.token_id,
        "name": token.name,
        "scope": token.scope,
        "created": Moment(token.created),
        "last_used": None if token.last_used is None else Moment(token.last_used),
    }


@tokens.command("revoke")
def revoke_token(who: Who, config: Config = None) -> None:
    """End a token, and every browser's session that began with it, from the very next request."""

    async def work(stores: Stores) -> None:
        revoked = await stores.tokens.revoke(who)
        say(f"revoked {revoked.token_id} {revoked.name}")

    with_stores(config, work)


@tokens.command("sign-out")
def sign_everybody_out(config: Config = None) -> None:
    """Sign every browser out, those that came by a link among them; tokens stay."""

    async def work(stores: Stores) -> None:
        say(f"signed out: {await stores.tokens.sign_everybody_out()}")

    with_stores(config, work)


def sign_in_link(as_json: AsJson = False, config: Config = None) -> None:
    """Print a link that signs a browser in to the dashboard: once, with every right, within 15 minutes."""
    admin = load(config).admin

    if not admin.enabled:
        typer.echo(
            "note: TRACKER_ADMIN__ENABLED is false here: only a tracker with other settings takes it",
            err=True,
        )

    async def work(stores: Stores) -> None:
        links = sign_in_urls(admin, await stores.tokens.new_link())
        if as_json:
            say_json({"link": links[0], "seconds": LINK_SECONDS})
            return
        for link in links:
            say(link)

    with_stores(config, work)


def sign_in_urls(admin: AdminSettings, secret: str) -> Sequence[str]:
    """Where the dashboard may be opened. The secret stands behind the #, which no browser sends along with a URL."""
    path = f"/sign-in#{secret}"
    listened = [
        address for address in admin.listen if not address.startswith("unix:") and address[-2:] != ":0"
    ]
    urls = [f"https://{host}{path}" for host in admin.hosts] + announce_urls(listened, path)
    return urls or [path]
