"""All drills, by name: each module here registers its own."""

from drills import processes
from drills.drill import DRILLS

__all__ = ["DRILLS", "processes"]
