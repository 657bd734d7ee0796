"""All experiments, by name: each module here registers its own."""

from loadtest.chaos import clocks, failover, processes, rolling, sessions, stores
from loadtest.chaos.experiment import EXPERIMENTS

__all__ = ["EXPERIMENTS", "clocks", "failover", "processes", "rolling", "sessions", "stores"]
