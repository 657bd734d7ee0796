"""All drills, by name: each module here registers its own."""

from drills import clocks, failover, processes, rolling, stores
from drills.drill import DRILLS

__all__ = ["DRILLS", "clocks", "failover", "processes", "rolling", "stores"]
