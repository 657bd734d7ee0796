"""The benchmark and the drills: real processes on loopback, measured from outside (see README.md)."""
