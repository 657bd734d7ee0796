"""Checks of the node of the DHT: what it last saved, and its settings."""

from collections.abc import AsyncIterator, Iterator

from tracker.doctor import Finding, ago
from tracker.settings.model import Settings
from tracker.store.dht.nodes import DhtNodes
from tracker.store.dht.status import NodeStatus


async def check_dht_node(nodes: DhtNodes, settings: Settings, now: float) -> AsyncIterator[Finding]:
    """``now``: epoch seconds. Raises StoreUnavailable."""
    if not settings.dht.enabled:
        return
    name = settings.dht.node_name
    status = await nodes.status(name)
    if status is None:
        yield Finding("ok", "dht", f"the node {name} has not saved its status yet")
        return
    yield _state(status, now)
    if status.participation is not None:
        advice = status.participation.advice
        yield Finding("warning" if advice else "ok", "dht torrents", status.participation.text, advice)


def _state(status: NodeStatus, now: float) -> Finding:
    state = status.state(now)
    if state == "stopped":
        text = f"the node {status.name} last ran {ago(now - status.saved)} ago"
        return Finding("warning", "dht", text, "start the tracker, or look into its log")
    if state == "down" and status.last_answer is None:
        text = f"no node of the DHT has answered {status.name} since its start"
        remedy = "open its UDP port in the firewall; name TRACKER_DHT__BOOTSTRAP"
        return Finding("warning", "dht", text, remedy)
    if state == "down":
        assert status.last_answer is not None
        text = f"no node of the DHT has answered {status.name} for {ago(now - status.last_answer)}"
        return Finding("warning", "dht", text, "check this host's connection and firewall")
    if state == "up" and not (status.nodes(4) or status.nodes(6)):
        text = f"nodes of the DHT answer {status.name}, but it knows none: it keeps none with private addresses"
        return Finding("warning", "dht", text, "in a LAN set TRACKER_DHT__PRIVATE_ADDRESSES=true")
    return Finding("ok", "dht", f"{status.nodes(4)} nodes over IPv4, {status.nodes(6)} over IPv6")


def check_dht_settings(settings: Settings) -> Iterator[Finding]:
    dht = settings.dht
    if not dht.enabled:
        return
    if settings.users.private == "required":
        text = "the node of the DHT runs while users are required: public torrents are answered to anyone"
        yield Finding("warning", "dht", text, "set TRACKER_DHT__ENABLED=false unless this is intended")
    if any(listen.startswith("[::]:") for listen in dht.listen):
        text = "the node of the DHT listens on all IPv6 addresses: its answers may leave from another one"
        remedy = "if this host has several IPv6 addresses, name one global address in TRACKER_DHT__LISTEN"
        yield Finding("ok", "dht", f"{text}; {remedy}")
    if dht.give_peers and dht.verify_peers and not settings.probe.enabled:
        text = "no peer of the DHT is handed out: their check needs connections, which are disabled"
        yield Finding("warning", "dht", text, "set TRACKER_PROBE__ENABLED=true")
    if not dht.bootstrap and not dht.private_addresses:
        text = "no node of the DHT to begin with is named: only saved nodes and clients of public swarms are asked"
        yield Finding("ok", "dht", text)
