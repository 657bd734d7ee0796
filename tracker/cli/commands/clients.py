"""``tracker client …``."""

from typing import Annotated

from typer import Argument, Option

from tracker.cli.commands import Limit, Month, Pages, group, in_no_order, in_order
from tracker.cli.terminal import Row
from tracker.errors import ClientError
from tracker.operations.peers import format_prefix, parse_prefix
from tracker.store.stats.client_software import Outcome, parted
from tracker.store.stats.slices import ALL_TIME
from tracker.store.store import Store

# Most peer-id prefixes begin with a dash.
_DASHES = {"ignore_unknown_options": True}
Prefix = Annotated[str, Argument(metavar="PREFIX", help="Such as -TR40; percent-encode other bytes, e.g. %00.")]

clients = group("Manage allowed and denied clients, by peer-id prefix; show client statistics.")


@clients.command("allow", context_settings=_DASHES, audited="client.allow", each="client")
async def allow_client(
    store: Store, prefix: Prefix, name: Annotated[str, Option(help="Display name of the program.")] = ""
) -> str:
    """Allow clients by peer-id prefix (used if TRACKER_CLIENTS__ALLOW_LIST is on)."""
    await store.allow_list.add(parse_prefix(prefix), name)
    return f"allowed {prefix}"


@clients.command("disallow", context_settings=_DASHES, audited="client.disallow", each="client")
async def disallow_client(store: Store, prefix: Prefix) -> str:
    """Remove prefixes from the allow-list."""
    if not await store.allow_list.remove(parse_prefix(prefix)):
        raise ClientError("is not on the allow-list")
    return f"disallowed {prefix}"


@clients.command("list", lists="prefix:30 name")
async def list_clients(store: Store) -> Pages:
    """List allowed prefixes."""
    async for page in in_no_order(store.allow_list.page):
        yield ({"prefix": format_prefix(prefix), "name": name} for prefix, name in page)


@clients.command("deny", context_settings=_DASHES, audited="client.deny", each="client")
async def deny_client(
    store: Store,
    prefix: Prefix,
    reason: Annotated[
        str, Option(help="Reason shown to clients, at most 200 characters.", show_default="a default text")
    ] = "",
) -> str:
    """Refuse clients by peer-id prefix, even allowed ones; only while TRACKER_CLIENTS__DENY_LIST is on."""
    await store.deny_list.add(parse_prefix(prefix), reason)
    return f"denied {prefix}"


@clients.command("undeny", context_settings=_DASHES, audited="client.undeny", each="client")
async def undeny_client(store: Store, prefix: Prefix) -> str:
    """Remove prefixes from the deny list."""
    if not await store.deny_list.remove(parse_prefix(prefix)):
        raise ClientError("is not on the deny list")
    return f"no longer denied {prefix}"


@clients.command("denied", lists="prefix:30 reason")
async def list_denied(store: Store) -> Pages:
    """List denied prefixes."""
    async for page in in_no_order(store.deny_list.page):
        yield ({"prefix": format_prefix(prefix), "reason": reason} for prefix, reason in page)


@clients.command(
    "seen", lists=lambda failures, **_: "failures>12 program:40 reason" if failures else "joins>12 program"
)
async def seen(
    store: Store,
    failures: Annotated[
        bool, Option("--failures", help="List refused clients with the reason, instead of clients that joined.")
    ] = False,
    month: Month = None,
    limit: Limit = 20,
) -> Pages:
    """List client programs by joins or refusals, highest first. Programs report their own names."""
    kind: Outcome = "failures" if failures else "joins"

    def row(member: str, number: int) -> Row:
        if not failures:
            return {kind: number, "program": member}
        program, reason = parted(member)
        return {kind: number, "program": program, "reason": reason}

    read = store.client_software.top
    async for page in in_order(limit, lambda first, count: read(kind, month or ALL_TIME, count, first)):
        yield (row(*ranked) for ranked in page)
        if not page:
            when = "yet" if month is None else f"in {month}"
            yield f"no client was counted {when} (see TRACKER_CLIENTS__COUNT_SOFTWARE)"
