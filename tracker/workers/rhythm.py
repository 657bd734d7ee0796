"""Pauses that end at the same moment for all loops with the same interval.

The loops of all shards then call the store in the same turn of the event loop, and what they send a node is one write.
"""

import asyncio


async def until_next(seconds: float) -> None:
    """Waits until the event loop's clock reaches a multiple of ``seconds``, at least a quarter of them."""
    await asyncio.sleep(pause_until_next(seconds, asyncio.get_running_loop().time()))


def pause_until_next(seconds: float, now: float) -> float:
    """The pause (s) from ``now``. A timer that ends a little early does not lead to another, very short pause."""
    left = seconds - now % seconds
    return left if left >= seconds / 4 else left + seconds
