"""What the trackers on one store share, and nobody else knows."""

import secrets

from tracker.store.connection import Connection
from tracker.store.keys import Keys


async def shared_secret(connection: Connection, keys: Keys) -> bytes:
    """The bytes that key the hash of the clients' ``key``: made once, shared by all trackers on the store."""
    key = keys.secret()
    known = await connection.command("GET", key)
    if known is None:
        await connection.command("SET", key, secrets.token_bytes(32), "NX")
        known = await connection.command("GET", key)
    return bytes(known)
