"""The stages of a start. Each is a frozen record that one function makes from the stage before:

    Configured -> Opened -> Loaded -> Bound -> Serving -> Running

opened.py: log directories and cluster metadata; loaded.py: logs; bound.py: listeners, and this node
registered; serving.py: partitions led, coordinators, request handlers; running.py: repeating tasks.
Each function says to `undo` (configured.py) how its steps are undone, so a stop works from any
stage. The records are NamedTuples and no dataclasses because a start makes their classes: one takes
0.4 ms and not 2.
"""
