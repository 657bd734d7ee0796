"""Measurements become tables that Markdown understands, and say what they are to say."""

from typing import Any

from loadtest.bench import tables

NGINX = "nginx, a constant answer"


def run(total: float, store: float = 0.0, **changes: float) -> dict[str, float]:
    measured = {"total_us": total, "server_user_us": total - store - 1, "server_kernel_us": 1.0}
    measured |= {"store_us": store, "store_user_us": store, "store_kernel_us": 0.0}
    measured |= {"requests_per_s": 12_345.6, "p50_ms": 1.5, "p99_ms": 9.25}
    return measured | {"server_bytes": 60e6, "store_bytes": 150e6 if store else 0.0} | changes


def report(**changes: Any) -> dict[str, Any]:
    made = {
        "date": "2026-11-21",
        "command": "python -m loadtest.bench.run",
        "machine": {"processor": "a processor", "cores": "2", "memory": "24 GiB", "kernel": "6.1"},
        "versions": {"commit": "abc1234", "CPython": "3.11.7"},
        "runs": {"keep-alive": {"ours": [run(50, 20), run(40, 15), run(90, 30)], NGINX: [run(10)]}},
    }
    return {**made, **changes}


def rows(text: str) -> list[list[str]]:
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|")]


def test_a_spread_is_minimum_median_and_maximum() -> None:
    assert tables.spread([3, 1, 10, 2]) == "1.0 / 2.5 / 10.0"
    assert tables.spread([7.0], ".0f") == "7 / 7 / 7"


def test_every_row_has_as_many_cells_as_the_head() -> None:
    text = tables.benchmark(report(), NGINX)
    assert {len(row) for row in rows(text)} == {9}
    assert "### Keep-alive" in text
    assert "2026-11-21, `python -m loadtest.bench.run`: a processor, 2 cores" in text
    assert "commit abc1234" in text


def test_a_row_contains_the_split_and_the_ratio() -> None:
    ours, nginx = rows(tables.benchmark(report(), NGINX))[2:]
    assert ours[0] == "ours"
    assert ours[1] == "40.0 / 50.0 / 90.0"
    assert ours[3] == "20.0 + 0.0"
    assert ours[4:8] == ["5.00", "12,346", "1.50", "9.25"]
    assert ours[8] == "60 + 150"
    assert nginx[3] == "–", "a constant server has no store"
    assert nginx[4] == "1.00"


def test_without_nginx_there_is_no_ratio() -> None:
    text = tables.benchmark(report(runs={"close": {"ours": [run(50, 20)]}}), NGINX)
    assert rows(text)[2][4] == "–"
    assert "### One connection per request" in text


def test_memory_is_listed_by_key_and_unique_users_together() -> None:
    kinds = {"t:p:<n>:<hex>": 250.0, "t:x.users": 30.0, "t:i:unique:all": 5.0, "t:a": 0.5, "t:b": 0.25}
    text = tables.benchmark(report(memory={"bytes_per_peer": 643.2, "by_key": kinds}), NGINX)
    assert "643 bytes" in text
    assert "about 35 of them hold unique" in text
    assert "| `t:p:<n>:<hex>` | 250.0 |\n| all others | 0.8 |" in text


def test_remarks_and_decoded_answers_are_listed() -> None:
    answers = {"ours": {"announces": 990, "scrapes": 10, "with_peers": 980, "peers": 30_000, "mean_peers": 30.3}}
    text = tables.benchmark(report(remarks=["other: left out (apt install other)."], answers=answers), NGINX)
    assert "- other: left out (apt install other)." in text
    assert "- ours: 30.3 peers in an answer, 980 of 990 announces got peers" in text
