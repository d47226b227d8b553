"""The coordinators of groups, transactions and share groups, and what they have in common.

journal.py writes each change into an internal topic in rounds (rounds.py) and replays it; timers.py
calls at a time; txn_markers.py writes the markers of transactions; coordinators.py wires the three.
"""
