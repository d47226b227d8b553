"""The old consumers: `SimpleConsumer` reads given partitions and offsets; `ConsumerConnector` reads
topics as a member of a group, which shares the partitions and commits offsets.

Start with requests.py, messages.py and simple_consumer.py; then connector.py, which combines

    config.py         the settings, under their names of 0.7 and 0.8
    topic_filter.py, subscription.py   the topics that a member reads, and its registration
    group.py          the interface between the connector and a kind of group membership
    zookeeper_group.py, coordinator_group.py   the two kinds; zookeeper_tree.py is the registry
    offset_stores.py  the stores of committed offsets: ZooKeeper, Kafka, or both
    fetchers.py, chunks.py, streams.py   from a broker's response to the caller's loop
"""
