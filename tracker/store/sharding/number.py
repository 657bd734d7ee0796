"""The number of shards that a store was made with. A store that `tracker reshard` fills is refused until it is full."""

from contextlib import suppress

from redis.exceptions import ResponseError

from tracker.errors import StartupError
from tracker.store.client.connection import Connection
from tracker.store.schema.keys import MAX_SHARDS, Keys, main_prefix_of


async def check_number(connection: Connection, prefix: str, shards: int) -> None:
    """Writes the number into a new store. Raises StartupError if the store was made with another one, or is not full
    yet."""
    await _check_complete(connection, Keys(main_prefix_of(prefix, shards)))
    keys = Keys(main_prefix_of(prefix, MAX_SHARDS))
    made_with = 1
    with suppress(ResponseError):  # the user may not read this key: then the store has one shard
        found = await connection.command("GET", keys.shards())
        # On a cluster there is none without a hash tag.
        if found is None and shards > 1 and (connection.nodes or not await _has_one(connection, prefix)):
            await connection.command("SET", keys.shards(), shards, "NX")
            found = await connection.command("GET", keys.shards())
        made_with = 1 if found is None else int(found)
    if made_with != shards:
        raise StartupError(
            f"the store was made with {made_with} shard{'s' * (made_with > 1)}: "
            f"set TRACKER_REDIS__SHARDS={made_with}, or another prefix; `tracker reshard` makes a store with more"
        )


async def _check_complete(connection: Connection, keys: Keys) -> None:
    with suppress(ResponseError):
        if await connection.command("EXISTS", keys.reshard()):
            raise StartupError("`tracker reshard` has not filled this store yet: run it again to its end")


async def _has_one(connection: Connection, prefix: str) -> bool:
    """Whether a tracker or a command without shards has used the store."""
    keys = Keys(prefix)
    used = (keys.heartbeat(), keys.secret(), keys.users(), keys.index("seeders"), keys.admin_tokens())
    return bool(await connection.command("EXISTS", *used))
