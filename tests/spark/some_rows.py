"""Records with missing parts of every kind, and transactions."""

from confluent_kafka import Producer


def rows(count):
    return [
        (
            None if i % 3 == 0 else b"k%d" % i,
            None if i % 7 == 2 else b"v" * (i % 40),
            [("h", b"%d" % i), ("n", None)] if i % 5 == 0 else None,
        )
        for i in range(count)
    ]


def transactions(broker, topic):
    """A committed and an aborted transaction between records without a transaction."""
    for decided in ("commit", "abort", "commit"):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": f"{topic}-{decided}",
            }
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        for i in range(40):
            producer.produce(topic, f"{decided}-{i}", partition=i % 2)
        producer.flush(20)
        if decided == "commit":
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
