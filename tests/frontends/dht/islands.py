"""DHTs without internet: nodes of libtorrent, each with an address of its own."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import libtorrent as lt

PORT = 17600
SEED, IMPLIED_PORT = 1, 2


def loopback_host(number: int) -> str:
    """An address of loopback that no other test process uses. ``number`` below 1,024."""
    pid = os.getpid()
    return f"127.{64 + pid // 64 % 64}.{4 * (pid % 64) + number // 256}.{number % 256}"


def session(interfaces: str) -> Any:
    """A node for an island. Without these settings libtorrent keeps one node of a network, and bans who asks often."""
    off = (
        "dht_restrict_routing_ips",
        "dht_restrict_search_ips",
        "dht_prefer_verified_node_ids",
        "dht_enforce_node_id",
        "dht_ignore_dark_internet",
    )
    return public_session(
        interfaces, **dict.fromkeys(off, False), dht_block_ratelimit=1000, dht_upload_rate_limit=1_000_000
    )


def public_session(interfaces: str, **changes: Any) -> Any:
    """With its defaults for the DHT, but without the bootstrap nodes."""
    settings: Any = {
        **dict.fromkeys(("enable_lsd", "enable_upnp", "enable_natpmp"), False),
        "listen_interfaces": interfaces,
        "enable_dht": True,
        "dht_bootstrap_nodes": "",
        "alert_mask": lt.alert.category_t.dht_notification | lt.alert.category_t.dht_operation_notification,
        **changes,
    }
    return lt.session(settings)


@contextmanager
def island(hosts: Sequence[str], known: tuple[str, int], neighbours: int = 1) -> Iterator[list[Any]]:
    """A node of libtorrent at each host. All know ``known`` and as many of those before them."""
    sessions = [session(f"{host}:{PORT}") for host in hosts]
    for number, each in enumerate(sessions):
        each.add_dht_node(known)
        for host in hosts[max(number - neighbours, 0) : number]:
            each.add_dht_node((host, PORT))
    yield sessions
    sessions.clear()  # ends their threads
