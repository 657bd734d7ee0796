"""All drills, by name: each module here registers its own."""

from drills import clocks, failover, processes, stores
from drills.drill import DRILLS

__all__ = ["DRILLS", "clocks", "failover", "processes", "stores"]
