"""The benchmark and the experiments: real processes on loopback, measured from outside (see README.md)."""
