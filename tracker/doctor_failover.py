"""What the doctor says of a store that sentinels watch over: whether they agree, and what a failover would lose."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tracker.finding import Finding
from tracker.store.connection import Connection
from tracker.store.notifications import read_setting
from tracker.store.sentinel import Word


async def examine_failover(connection: Connection, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """Nothing where no sentinels are. ``info`` is the server's INFO, empty where that is forbidden."""
    words = await connection.sentinels()
    if words is None:
        return
    yield _agreement(words, connection.master)
    if info:
        least = await read_setting(connection, "min-replicas-to-write")
        yield stand_ins(int(info.get("connected_slaves", 0)), least)


def stand_ins(replicas: int, least: str | None) -> Finding:
    """``least`` is min-replicas-to-write, None where it may not be read."""
    if not replicas:
        text = "the master has no replica, so there is nothing to fail over to"
        return Finding("wrong", "replicas", text, "start one: replicaof <host> <port of the master>")
    if least == "0" and replicas > 1:
        text = (
            f"{replicas} connected, but a master that is cut off from them goes on taking what will be lost"
        )
        return Finding(
            "warning", "replicas", text, "set min-replicas-to-write to 1 and min-replicas-max-lag to 10"
        )
    return Finding("ok", "replicas", f"{replicas} connected")


def _agreement(words: list[Word], master: str) -> Finding:
    agree = [word for word in words if word.address and f"{word.address[0]}:{word.address[1]}" == master]
    if len(agree) == len(words) and len(words) > 2:
        return Finding("ok", "sentinels", f"all {len(words)} name {master} the master")
    if len(agree) == len(words):
        text = f"{len(words)} name {master} the master: with fewer than 3 the end of one can keep the others from acting"
        return Finding("warning", "sentinels", text, "name 3 or more in TRACKER_REDIS__URL")
    others = "; ".join(
        f"{word.sentinel}: {word.problem or f'says {word.address}'}" for word in words if word not in agree
    )
    text = f"{len(agree)} of {len(words)} name {master} the master ({others})"
    return Finding("warning", "sentinels", text, "see that all of them run and watch the same master")
