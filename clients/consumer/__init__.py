"""The old consumers: `SimpleConsumer`, which reads where it is told, and `ConsumerConnector`, whose
groups share topics and remember how far they have read.

Read on: requests.py, messages.py, simple_consumer.py; then connector.py, which puts together
    config.py         the settings, under their names of 0.7 and 0.8
    topic_filter.py, subscription.py   what a member of a group reads, and the document that says so
    group.py          what a form of membership owes the connector
    zookeeper_group.py, coordinator_group.py   the two forms; zookeeper_tree.py is the registry
    offset_stores.py  where offsets are kept: ZooKeeper, Kafka, or both
    fetchers.py, chunks.py, streams.py   from a broker's answer to the caller's loop
"""
