"""What the server says about itself: INFO, as text by field."""

from tracker.store.client.connection import Connection


def parse_info(reply: bytes) -> dict[str, str]:
    """The fields of INFO's reply. Section titles and what is no field are left out."""
    lines = reply.decode("utf-8", "replace").splitlines()
    fields = (line.partition(":") for line in lines if not line.startswith("#"))
    return {name: value for name, colon, value in fields if colon}


async def read_info(connection: Connection, *sections: str) -> dict[str, str]:
    """INFO, or some sections of it. Raises StoreUnavailable, and redis.exceptions.ResponseError where it is
    forbidden."""
    return parse_info(await connection.command("INFO", *sections))


def bytes_in(info: dict[str, str], field: str) -> int:
    """A field that counts bytes; 0 where the server does not have it."""
    return int(info.get(field, 0))
