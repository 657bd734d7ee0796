"""Memory freed after a flood returns to the system."""

import subprocess
import sys

import pytest

GROWN_AND_RELEASED = """
import asyncio, resource
from pathlib import Path
from tracker.system.resources import release_memory

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

kept, gone = [], []
for number in range(5_000):
    gone.append(b"x" * 20_000)
    kept.append(bytes(600))
before = megabytes()
gone.clear()
freed = megabytes()

async def release():
    release_memory()
    await asyncio.get_running_loop().shutdown_default_executor()

asyncio.run(release())
print(before, freed, megabytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc here")
def test_freed_memory_is_returned_to_the_system() -> None:
    shown = subprocess.run([sys.executable, "-c", GROWN_AND_RELEASED], capture_output=True, text=True, check=True)
    before, freed, released = map(float, shown.stdout.split())
    assert before - freed < 20, "the allocator would have given it back by itself"
    assert released < freed - 20
