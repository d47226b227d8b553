"""What this broker answers: one file per API key, and the table made of them.

Read table.py (which keys and versions), dispatch.py (bytes to handler and back), then any kNN.
Produce and Fetch are answered on the network threads (cext/produce/produce, cext/fetch/fetch);
their files here say which versions.
"""
