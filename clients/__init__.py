"""The old-generation client APIs in Python, over today's protocol: what Kafka 0.7 and 0.8 called
the producer, the simple consumer and the consumer connector.

    connector = Consumer.create({"group.id": "readers", "bootstrap.servers": "127.0.0.1:9092"})
    (stream,) = connector.create_message_streams({"news": 1})["news"]
    for message in stream:
        print(message.partition, message.offset, message.message)

docs/old-clients-consumer.md maps each class and method of the old design to these.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.clients.consumer.connector import Consumer as Consumer
    from barnabas.clients.consumer.connector import ConsumerConnector as ConsumerConnector
    from barnabas.clients.consumer.requests import FetchRequest as FetchRequest
    from barnabas.clients.consumer.simple_consumer import SimpleConsumer as SimpleConsumer
    from barnabas.clients.consumer.streams import ConsumerTimeout as ConsumerTimeout
    from barnabas.clients.consumer.topic_filter import Blacklist as Blacklist
    from barnabas.clients.consumer.topic_filter import Whitelist as Whitelist
    from barnabas.clients.error_mapping import ErrorMapping as ErrorMapping

# Name -> module: nothing is imported before it is asked for.
_MODULES = {
    "Blacklist": "barnabas.clients.consumer.topic_filter",
    "Consumer": "barnabas.clients.consumer.connector",
    "ConsumerConfig": "barnabas.clients.consumer.config",
    "ConsumerConnector": "barnabas.clients.consumer.connector",
    "ConsumerRebalanceFailed": "barnabas.clients.consumer.group",
    "ConsumerTimeout": "barnabas.clients.consumer.streams",
    "ErrorMapping": "barnabas.clients.error_mapping",
    "FetchRequest": "barnabas.clients.consumer.requests",
    "FetchRequestBuilder": "barnabas.clients.consumer.requests",
    "SimpleConsumer": "barnabas.clients.consumer.simple_consumer",
    "TopicAndPartition": "barnabas.clients.consumer.requests",
    "Whitelist": "barnabas.clients.consumer.topic_filter",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
