"""Output of the samplers is grouped."""

from pathlib import Path

import pytest

from loadtest.bench import samples
from loadtest.bench.symbols import Symbols
from tracker.valkey.server import server_binary

PERF = """ 42
\tffffffff82200eab _raw_spin_lock_bh ([kernel.kallsyms])
\tffffffff816b90ea ksys_write ([kernel.kallsyms])
\tffffffff821ecc51 do_syscall_64 ([kernel.kallsyms])
\t           f838f __GI___libc_write (/usr/lib/x86_64-linux-gnu/libc.so.6)

 43
\t          22eb1f [unknown] (/opt/valkey-server)

 43
\t           533ce __GI___printf_fp_l (/usr/lib/x86_64-linux-gnu/libc.so.6)

    44
\tffffffff82200000 asm_sysvec_apic_timer_interrupt ([kernel.kallsyms])
"""
LOOP = "main (tracker/cli/main.py:7);serve (tracker/cli/commands/serve.py:40);run_until_complete (loop.c:35410)"


def test_perf_is_read() -> None:
    kernel, unknown, libc, interrupt = samples.read_perf(PERF)
    assert [sample.pid for sample in (kernel, unknown, libc, interrupt)] == [42, 43, 43, 44]
    assert kernel.in_kernel
    assert samples.kernel_group(kernel) == "kernel: sockets, writing"
    assert samples.kernel_group(interrupt) == samples.KERNEL_OTHERS
    assert not unknown.in_kernel
    assert unknown.frames == [(0x22EB1F, "[unknown]", "/opt/valkey-server")]
    assert samples.store_group(unknown, {0x22EB1F: "luaV_execute"}.__getitem__) == "Lua"
    assert samples.store_group(unknown, lambda offset: "") == samples.OTHERS
    assert samples.store_group(libc, lambda offset: "luaV_execute") == "numbers to text and back"


@pytest.mark.parametrize(
    ("frames", "group"),
    [
        (
            "_submit (tracker/frontends/http/fast_protocol.py:9);"
            "parse_announce (tracker/wire/http_request.py:7)",
            "reading the query",
        ),
        (
            "_answered (tracker/frontends/http/fast_protocol.py:9);"
            "encode_announce (tracker/wire/http_reply.py:7)",
            "composing the answer",
        ),
        (
            "run (tracker/store/swarms/swarms.py:9);"
            "pack (tracker/store/swarms/codec.py:7);s_pack (_struct.c:1)",
            "packing for the store, and unpacking",
        ),
        ("data_received (tracker/frontends/http/aiohttp_protocol.py:1);feed_data (_http_parser.c:1)", "aiohttp"),
        ("flush (tracker/store/stats/counters.py:1);call_soon (loop.c:1)", "counting, GeoIP and background work"),
        ("Loop__run (loop.c:1);uv_run (core.c:1)", samples.EVENT_LOOP),
    ],
)  # fmt: skip
def test_the_innermost_frame_that_is_known_decides(frames: str, group: str) -> None:
    assert samples.tracker_groups([f"{LOOP};{frames} 3"]) == {group: 3}


def test_system_calls_and_other_threads_are_left_to_perf() -> None:
    stacks = [
        f"{LOOP};UVStream__try_write (loop.c:1);write (libc.so.6) 7",
        f"{LOOP};uv__io_poll (linux.c:1);epoll_pwait (libc.so.6) 7",
        "thread_run (libpython.so);_worker (concurrent/futures/thread.py:81) 7",
        f"{LOOP};write (loop.c:1) 2",
    ]
    assert samples.tracker_groups(stacks) == {samples.EVENT_LOOP: 2}


def test_shares_add_up() -> None:
    assert samples.scaled({"a": 1, "b": 3}, 20.0) == {"b": 15.0, "a": 5.0}
    assert list(samples.scaled({"a": 1, "b": 3}, 20.0)) == ["b", "a"]
    assert samples.scaled({}, 20.0) == {}


def test_an_address_belongs_to_the_function_before_it() -> None:
    symbols = Symbols(server_binary())
    (start, _, loaded) = max(symbols._segments, key=lambda segment: segment[1])
    address, name = next(each for each in symbols._functions if each[0] > loaded)
    assert symbols.at_offset(address - loaded + start) == name
    assert symbols.at_offset(address - loaded + start + 1) == name
    assert symbols.at_offset(10**12) == ""


def test_what_is_no_program_has_no_functions(tmp_path: Path) -> None:
    (file := tmp_path / "script").write_text("#!/bin/sh\n")
    assert Symbols(file).at_offset(0) == ""
