"""Template filters: format numbers, times and names. External input stays text, which templates escape; only elements
built here are markup."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from tracker.names import size_text
from tracker.store.schema.multipliers import factors

NOTHING = "–"
_SPANS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def number(value: float | None) -> str:
    """``12345`` -> 12,345; fractions have two digits."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def rate(value: float | None) -> str:
    """A rate per second; small rates have two decimals."""
    if value is None:
        return NOTHING
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(count: float | None) -> str:
    return NOTHING if count is None else size_text(count)


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole``; small shares are not rounded to 0."""
    if not whole:
        return NOTHING
    share = 100 * part / whole
    return "< 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    if seconds is None:
        return NOTHING
    value = seconds * 1000
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms" if value < 10 else f"{value:.1f} ms"


def duration(seconds: float | None) -> str:
    """The two largest units: ``2 h 5 min``."""
    if seconds is None:
        return NOTHING
    left, words = max(0, int(seconds)), []
    for unit, length in _SPANS:
        if left >= length:
            words.append(f"{left // length} {unit}")
            left %= length
        elif words:
            break
    return " ".join(words[:2]) or "0 s"


def prose(text: str) -> Markup:
    """Text with backticks as code; everything is escaped."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


def clock(at: float) -> str:
    """The time of the day of an epoch time."""
    then = _utc(at)
    return NOTHING if then is None else then.strftime("%H:%M UTC")


def moment(at: float | None) -> Markup | str:
    """An epoch time in UTC, as a ``time`` element."""
    then = _utc(at)
    if then is None:
        return NOTHING
    return Markup('<time datetime="{}">{}</time>').format(then.isoformat(), then.strftime("%Y-%m-%d %H:%M:%S UTC"))


def input_time(at: float | None) -> str:
    """An epoch time in UTC, as the value of an input of type datetime-local; empty for none."""
    then = _utc(at)
    return "" if then is None else then.strftime("%Y-%m-%dT%H:%M:%S")


def ago(at: float | None, now: float | None = None) -> Markup | str:
    """The distance to an epoch time, such as ``5 min ago``; the time itself is the tooltip."""
    then = _utc(at)
    if then is None or at is None:
        return NOTHING
    seconds = (time.time() if now is None else now) - at
    far = next((f"{abs(seconds) / length:.0f} {unit}" for unit, length in _SPANS if abs(seconds) >= length), "")
    text = "now" if not far else f"{far} ago" if seconds > 0 else f"in {far}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.isoformat(), then.strftime("%Y-%m-%d %H:%M:%S UTC"), text
    )


def _utc(at: float | None) -> datetime | None:
    if not at:
        return None
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):  # written by another program
        return None


def ratio(uploaded: int, downloaded: int) -> str:
    if downloaded:
        return f"{uploaded / downloaded:,.2f}"
    return "∞" if uploaded else "–"


_BY_NAME = (number, rate, size, percent, milliseconds, duration, prose, moment, clock, ago, input_time)
FILTERS: Mapping[str, Callable[..., Any]] = {
    **{each.__name__: each for each in _BY_NAME},
    "factors": lambda both, now: factors(both[0], both[1], now),
}
