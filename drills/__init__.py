"""Faults on purpose, with clients that announce all the time: `python -m drills`, or `make drill`. docs/trust.md has what they found.

A drill is a small function in one of the modules that faults.py names: ``@drill("its-name")`` over a coroutine that is given the
scene (trackers and store, running) and the fleet (the clients), does its damage, and returns when the rest is to heal by itself.
All of them are held and looked at alike, by drill.py and inspection.py.
"""
