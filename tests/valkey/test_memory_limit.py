"""The default memory limit of the private store: from cgroups of both versions, or the machine."""

import os
from pathlib import Path

import pytest

from tracker.valkey.memory import MIN_BYTES, default_limit, usable_memory

MB = 2**20
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("used", "usable", "limit"),
    [
        (0, 4096 * MB, int(4096 * MB * 0.6)),
        (0, 300 * MB, MIN_BYTES),
        (400 * MB, 512 * MB, 500 * MB),
        (4000 * MB, 1000 * MB, 5000 * MB),
    ],
)
def test_the_limit_leaves_room_for_data_and_for_the_tracker(used: int, usable: int, limit: int) -> None:
    assert default_limit(used, usable) == limit


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        ({}, MACHINE),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "104857600\n"}, 100 * MB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, MACHINE),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "52428800\n",
            },
            50 * MB,
        ),
        ({"proc/self/cgroup": "0::/not/seen/from/inside\n", "sys/fs/cgroup/memory.max": "104857600"}, 100 * MB),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/1\n",
                "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "104857600\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            100 * MB,
        ),
        ({"proc/self/cgroup": "0::/../..\nnonsense\n\n", "sys/fs/cgroup/memory.max": "1"}, MACHINE),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "0x10"}, MACHINE),
    ],
)
def test_the_usable_memory_is_that_of_the_tightest_cgroup(tmp_path: Path, files: dict[str, str], usable: int) -> None:
    write(tmp_path, files)
    assert usable_memory(tmp_path) == usable
