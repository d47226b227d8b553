"""Cluster state: a small tree of nodes with versions, ephemerals and watches, and its stores.

Read `tree` first (the contract of every store), then `embedded` (the store of a single node),
`znodes` (Kafka's paths and their JSON) and `cluster_state` (the read model made from them).
"""
