"""Charts of the past in the format of charts.js."""

from typing import Any

from tracker.operations.history import Chart, Part, Slices, Unit

UNITS: dict[Unit, str] = {
    "per second": "/s",
    "bytes per second": "B/s",
    "seconds": " ms",
    "count": "",
}
"""What charts.js shows after a value. Seconds are drawn as milliseconds."""


def chart_data(chart: Chart, slices: Slices, by: Part = "total") -> dict[str, Any]:
    """The JSON of a chart. A line of UDP beside the total of all is left out while it is 0."""
    factor, digits = 1000 if chart.unit == "seconds" else 1, 1 if chart.unit == "count" else 3
    return {
        "x": slices.starts,
        "incomplete": slices.incomplete,
        "series": [
            {
                "name": line.label,
                "values": [
                    None if value is None else round(value * factor, digits)
                    for value in slices.values[line.name]
                ],
            }
            for line in chart.lines_by(by)
            if line.name != "udp" or by != "total" or any(slices.values[line.name])
        ],
    }
