"""What a metric is, and where its values come from."""

from typing import Literal, NamedTuple

Source = tuple[str, tuple[str, ...]]
"""(metric, values of its labels)"""

Kind = Literal["counter", "gauge", "histogram", "info"]
Scope = Literal["tracker", "store"]


class Metric(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = "tracker"
    """``tracker``: sum over the processes of this tracker; ``store``: equal on every tracker of the store."""
