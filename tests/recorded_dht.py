"""What clients sent to a tracker's node of the DHT in a minute, as ``python -m tests.e2e.test_dht`` recorded it."""

import json
from pathlib import Path

FILE = Path(__file__).parent / "vectors" / "dht.json"
CLIENTS = ("libtorrent", "Transmission", "aria2")


def messages(client: str) -> list[tuple[float, bytes]]:
    """In order, with the seconds since the first one."""
    found = json.loads(FILE.read_text())["messages"]
    return [(each["seconds"], bytes.fromhex(each["hex"])) for each in found if each["client"] == client]
