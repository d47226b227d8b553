"""The stages of a start. Each is a frozen record that one function makes from the stage before:

    Configured -> Opened -> Loaded -> Bound -> Serving -> Running

opened.py opens the log directories and the metadata store; loaded.py opens the logs; bound.py binds
the listeners and registers this node; serving.py leads partitions and starts coordinators and
request handlers; running.py starts the repeating tasks. Each function adds to `undo`
(configured.py) how to undo its steps, so that a stop works from any stage. The records are
NamedTuples and not dataclasses, because each start creates their classes: one takes 0.4 ms instead
of 2.
"""
