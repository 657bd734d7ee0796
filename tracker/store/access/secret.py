"""The secret that all trackers on one store share."""

import secrets

from tracker.store.client.connection import Connection
from tracker.store.schema.keys import Keys


async def shared_secret(connection: Connection, keys: Keys) -> bytes:
    """Returns the 32 bytes that key the hash of the clients' ``key``. Creates them if the store has none."""
    key = keys.secret()
    known = await connection.command("GET", key)
    if known is None:
        await connection.command("SET", key, secrets.token_bytes(32), "NX")
        known = await connection.command("GET", key)
    return bytes(known)
