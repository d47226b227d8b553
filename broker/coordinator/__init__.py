"""The coordinators of groups, transactions and share groups, and their common parts.

journal.py writes each change into an internal topic in rounds (rounds.py) and replays it; timers.py
runs callbacks at given times; txn_markers.py writes the markers of transactions; coordinators.py
creates the three.
"""
