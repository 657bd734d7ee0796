"""Measurements as Markdown tables."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Measurements = Mapping[str, float]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Minimum / median / maximum."""
    return " / ".join(format(value, form) for value in (min(values), statistics.median(values), max(values)))


def median(runs: Sequence[Measurements], figure: str) -> float:
    return statistics.median(run[figure] for run in runs)


MODES = {"keep-alive": "Keep-alive", "close": "One connection per request"}
_UNIQUES = re.compile(r"\.users|^t:i:unique:")
MIN_BYTES = 2.0
"""Kinds of keys with fewer bytes per peer are summed up."""
_HEAD = (
    *("", "CPU µs per request: min / median / max", "server: user + kernel", "store: user + kernel"),
    *("times nginx", "requests/s", "p50 ms", "p99 ms", "memory MB: server + store"),
)


def benchmark(report: Mapping[str, Any], yardstick: str) -> str:
    """The block of `python -m loadtest.bench.run`."""
    parts = [setting(report)]
    for mode, by_name in report["runs"].items():
        nginx = by_name.get(yardstick)
        rows = [_row(name, runs, nginx) for name, runs in by_name.items()]
        parts.append(f"### {MODES[mode]}\n\n{table(_HEAD, rows)}")
    parts += [*_memory(report), *_answers(report), *_remarks(report)]
    return "\n\n".join(parts)


def setting(report: Mapping[str, Any]) -> str:
    """The machine, the versions and the command."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return (
        f"{report['date']}, `{report['command']}`: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory']}, Linux {machine['kernel']}; {versions}."
    )


def _row(name: str, runs: Sequence[Measurements], nginx: Sequence[Measurements] | None) -> list[str]:
    total = median(runs, "total_us")
    times = f"{total / median(nginx, 'total_us'):.2f}" if nginx else "–"
    stored = median(runs, "store_us") > 0
    return [
        name,
        spread([run["total_us"] for run in runs]),
        f"{median(runs, 'server_user_us'):.1f} + {median(runs, 'server_kernel_us'):.1f}",
        f"{median(runs, 'store_user_us'):.1f} + {median(runs, 'store_kernel_us'):.1f}" if stored else "–",
        times,
        f"{median(runs, 'requests_per_s'):,.0f}",
        f"{median(runs, 'p50_ms'):.2f}",
        f"{median(runs, 'p99_ms'):.2f}",
        f"{median(runs, 'server_bytes') / 1e6:.0f}" + (f" + {median(runs, 'store_bytes') / 1e6:.0f}" if stored else ""),
    ]


def _memory(report: Mapping[str, Any]) -> list[str]:
    measured = report.get("memory")
    if not measured:
        return []
    uniques = sum(cost for kind, cost in measured["by_key"].items() if _UNIQUES.search(kind))
    others = {kind: cost for kind, cost in measured["by_key"].items() if not _UNIQUES.search(kind)}
    rows = [(f"`{kind}`", f"{cost:.1f}") for kind, cost in others.items() if cost >= MIN_BYTES]
    rows.append(("all others", f"{sum(cost for cost in others.values() if cost < MIN_BYTES):.1f}"))
    text = (
        f"{measured['bytes_per_peer']:.0f} bytes of `used_memory` per active IPv4 peer; about {uniques:.0f} of them "
        "hold unique users, which depends on the addresses and not on the peers. By kind of key about:"
    )
    return [f"### Memory of the store\n\n{text}", table(("key", "bytes per peer"), rows)]


def _answers(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name}: {answers['mean_peers']:.1f} peers in an answer, {answers['with_peers']} of "
        f"{answers['announces']} announces got peers"
        for name, answers in report.get("answers", {}).items()
    ]
    return ["Decoded before the first run:\n\n" + "\n".join(f"- {line}" for line in lines)] if lines else []


def _remarks(report: Mapping[str, Any]) -> list[str]:
    remarks = report.get("remarks", [])
    return ["\n".join(f"- {remark}" for remark in remarks)] if remarks else []
