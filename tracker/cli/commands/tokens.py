"""``tracker token …`` and ``tracker sign-in-link``: access to the admin port."""

import time
from collections.abc import Sequence
from typing import Annotated

from typer import Argument, BadParameter, Option

from tracker.cli.commands import AsJson, Pages, config_file, group, traits
from tracker.cli.commands.options import row_of
from tracker.cli.terminal import Row, announce_urls, note, say, say_json
from tracker.operations.audit import Change
from tracker.settings.site import AdminSettings
from tracker.settings.sources import load
from tracker.store.access.tokens import LINK_SECONDS, ROLES, Token
from tracker.store.schema.multipliers import parse_end
from tracker.store.schema.record import fields_of
from tracker.store.store import Store

Who = Annotated[str, Argument(metavar="TOKEN", help="Name or id of a token.")]

tokens = group("Manage tokens for the admin port: its API, its metrics and its dashboard.")


def _check_new(role: str, read_only: bool, expires: str | None) -> None:
    if role not in ROLES:
        raise BadParameter("--role must be read, operate or admin")
    if read_only and role == "operate":
        raise BadParameter("give --role or --read-only")
    parse_end(expires or "", time.time())


@tokens.command("create", audited="token.create", checks=_check_new)
async def create_token(
    store: Store,
    change: Change,
    name: Annotated[str, Argument(metavar="NAME", help="What uses the token, such as `prometheus`; must be unique.")],
    role: Annotated[
        str, Option(help="read, operate (daily changes too) or admin (everything).", show_default=True)
    ] = "admin",
    read_only: Annotated[bool, Option("--read-only", help="The same as `--role read`.")] = False,
    expires: Annotated[
        str | None,
        Option(
            metavar="WHEN",
            help="When it becomes invalid: 90d, 12h, or a date such as 2026-12-31 (UTC).",
            show_default="never",
        ),
    ] = None,
    addresses: Annotated[
        list[str] | None,
        Option(
            "--address",
            metavar="NETWORK",
            help="IP address or network that it may be used from; repeatable.",
            show_default="any",
        ),
    ] = None,
) -> Row:
    """Create a token and print it. It is not shown again: the store keeps only its hash."""
    assert role in ROLES  # _check_new
    end = parse_end(expires or "", time.time())
    token, text = await store.tokens.create(name, "read" if read_only else role, expires=end, addresses=addresses or ())
    change.created("token", token.token_id)
    return {**_row(token), "token": text}


@tokens.command("list", lists="id:12 role:7 created:20 last_used:20 expires:20? addresses:20? name:64")
async def list_tokens(store: Store) -> Pages:
    """List tokens, and when each was last used (to the minute). Secrets are not shown."""
    yield (_row(token) for token in await store.tokens.list())


def _row(token: Token) -> Row:
    return {"id": token.token_id, **row_of(token, [name for name in fields_of(Token) if name != "token_id"])}


@tokens.command("revoke", audited="token.revoke")
async def revoke_token(store: Store, change: Change, who: Who) -> None:
    """Revoke a token, and the browser sessions that were opened with it, from the next request on."""
    await change.touch("token", who)
    revoked = await store.tokens.revoke(who)
    say(f"revoked {revoked.token_id} {revoked.name}")


@tokens.command("sign-out", audited="token.sign_out")
async def sign_out(store: Store, change: Change) -> None:
    """Sign out all browsers, including those signed in by link. Tokens stay valid."""
    ended = await store.tokens.end_all_sessions()
    change.count(signed_out=ended)
    say(f"signed out: {ended}")


@traits(audited="token.sign_in_link")
async def sign_in_link(store: Store, change: Change, as_json: AsJson = False) -> None:
    """Print a link that signs a browser in to the dashboard, once, within 15 minutes, with role admin."""
    del change  # it has no object
    admin = load(config_file.get()).admin
    if not admin.enabled:
        note("TRACKER_ADMIN__ENABLED is false in these settings: only a tracker with other settings accepts the link")
    links = sign_in_urls(admin, await store.tokens.new_link())
    if as_json:
        say_json({"link": links[0], "seconds": LINK_SECONDS})
        return
    for link in links:
        say(link)


def sign_in_urls(admin: AdminSettings, secret: str) -> Sequence[str]:
    """URLs of the dashboard, the most likely one first. The secret follows the #: browsers send no fragment to a
    server.

    Host names with a dot usually belong to a proxy with TLS, so they come first. Names without a dot exist only in a
    network of containers, and IP addresses rarely have a certificate, so they come last.
    """
    path = f"/sign-in#{secret}"
    listened = [address for address in admin.listen if not address.startswith("unix:") and address[-2:] != ":0"]
    public = [f"https://{host}{path}" for host in admin.hosts if not _is_local_name(host)]
    local = [f"https://{host}{path}" for host in admin.hosts if _is_local_name(host)]
    configured = [admin.url + path] if admin.url else []
    urls = [*configured, *public, *announce_urls(listened, path), *local]
    return list(dict.fromkeys(urls)) or [path]


def _is_local_name(host: str) -> bool:
    return "." not in host.rstrip(".") or ":" in host or host.rpartition(".")[2].isdigit()
