"""Who decides about topics and leaders. One node is a cluster of one: its controller is itself.

Read topic_names.py, then topics.py.
"""
