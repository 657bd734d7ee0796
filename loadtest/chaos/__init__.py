"""Faults injected while clients announce: `python -m loadtest.chaos`, or `make chaos`. docs/trust.md has the results.

An experiment is a function in one of the modules that registry.py imports: ``@experiment("its-name")`` on a coroutine.
It gets the environment (running trackers and store) and the load (the clients), injects its fault, and returns when the
rest must recover without help. experiment.py and inspection.py run and check all experiments alike.
"""
