"""A job worker in a separate process, which tests kill, stop and continue.

``python -m tests.workers.job_process URL PREFIX LEASE``. Its job prints that it began, runs until the key
``<prefix>go`` exists, and prints that it ended.
"""

import asyncio
import sys
import time
from typing import Any

from redis.exceptions import RedisError

from tracker.store.client.connection import Connection, connect
from tracker.store.client.scripts import Scripts
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import JobLimits
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard
from tracker.workers.jobs import JobWorker, Queue


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(url: str, prefix: str, lease_seconds: float) -> None:
    connection = Connection(connect(url, connect_timeout=5, timeout=5))
    jobs = Jobs(
        Shard(0, connection, Scripts(connection, prefix), Keys(prefix)),
        time.time,
        JobLimits(lease_seconds=lease_seconds),
    )

    async def handler(payload: dict[str, Any]) -> None:
        say(f"began {payload}")
        try:
            while not await connection.command("EXISTS", f"{prefix}go"):
                await asyncio.sleep(0.01)
        finally:
            say("ended")

    worker = JobWorker(jobs, connection, {"q": Queue(handler)}, clock=time.time, poll_seconds=0.02)
    try:
        await worker.run()
    except RedisError:  # the test has ended and stopped its server
        return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
