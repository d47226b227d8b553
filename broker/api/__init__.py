"""The APIs of this broker: one file for each API key, and the table of all of them.

Read table.py (keys and versions), dispatch.py (from bytes to the handler and back), then any kNN.
Native handlers answer Produce and Fetch on the network threads (cext/produce/produce,
cext/fetch/fetch); their files here declare the versions.
"""
