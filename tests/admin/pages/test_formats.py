"""Formatting of numbers and times."""

import pytest

from tracker.admin.pages.rendering import ago, duration, milliseconds, moment, number, percent, prose, rate, size

NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (number(1234567), "1,234,567"),
        (number(0.5), "0.50"),
        (number(None), "–"),
        (rate(0), "0"),
        (rate(0.1234), "0.12"),
        (rate(45.67), "45.7"),
        (rate(12345.6), "12,346"),
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (size(2.0**70), "1,024.0 EiB"),
        (percent(1, 3), "33.3 %"),
        (percent(1, 100_000), "< 0.1 %"),
        (percent(1, 0), "–"),
        (milliseconds(0.00042), "0.42 ms"),
        (milliseconds(0.0123), "12.3 ms"),
        (milliseconds(1.5), "1,500 ms"),
        (duration(0), "0 s"),
        (duration(59), "59 s"),
        (duration(7500), "2 h 5 min"),
        (duration(90061), "1 d 1 h"),
        (duration(86_400 + 5), "1 d"),
        (moment(None), "–"),
        (moment(10.0**30), "–"),
    ],
)
def test_numbers_are_formatted(written: str, text: str) -> None:
    assert written == text


def test_times_are_readable_and_machine_readable() -> None:
    assert str(moment(NOW)) == '<time datetime="2027-01-15T08:00:00+00:00">2027-01-15 08:00:00 UTC</time>'
    assert ">5 min ago<" in ago(NOW - 300, NOW)
    assert ">in 2 h<" in ago(NOW + 7200, NOW)
    assert ">now<" in ago(NOW, NOW)
    assert ago(None, NOW) == ago(float("inf"), NOW) == "–"


def test_text_around_code_is_escaped() -> None:
    assert prose("set `A=<b>` & go") == "set <code>A=&lt;b&gt;</code> &amp; go"
