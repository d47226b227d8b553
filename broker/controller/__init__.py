"""The controller: topics, leaders and features. A single node is its own controller.

Read topic_names.py, then topics.py.
"""
