"""The client APIs of Kafka 0.7 and 0.8 in Python, over today's protocol: the producer, the simple
consumer and the consumer connector.

    with Producer({"metadata.broker.list": "127.0.0.1:9092", "producer.type": "async"}) as producer:
        producer.send(ProducerData("page-views", "member-17", [b"/", b"/jobs"]))

    connector = Consumer.create({"group.id": "readers", "bootstrap.servers": "127.0.0.1:9092"})
    (stream,) = connector.create_message_streams({"page-views": 1})["page-views"]
    for message in stream:
        print(message.partition, message.offset, message.message)

docs/old-clients.md and docs/old-clients-consumer.md map each class and method of the old clients to
the ones here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.clients.consumer.config import ConsumerConfig as ConsumerConfig
    from barnabas.clients.consumer.connector import Consumer as Consumer
    from barnabas.clients.consumer.connector import ConsumerConnector as ConsumerConnector
    from barnabas.clients.consumer.group import ConsumerRebalanceFailed as ConsumerRebalanceFailed
    from barnabas.clients.consumer.requests import FetchRequest as FetchRequest
    from barnabas.clients.consumer.requests import FetchRequestBuilder as FetchRequestBuilder
    from barnabas.clients.consumer.requests import TopicAndPartition as TopicAndPartition
    from barnabas.clients.consumer.simple_consumer import SimpleConsumer as SimpleConsumer
    from barnabas.clients.consumer.streams import ConsumerTimeout as ConsumerTimeout
    from barnabas.clients.consumer.topic_filter import Blacklist as Blacklist
    from barnabas.clients.consumer.topic_filter import Whitelist as Whitelist
    from barnabas.clients.error_mapping import ErrorMapping as ErrorMapping
    from barnabas.clients.failures import InvalidConfig as InvalidConfig
    from barnabas.clients.producer.failures import FailedToSend as FailedToSend
    from barnabas.clients.producer.failures import MessageSizeTooLarge as MessageSizeTooLarge
    from barnabas.clients.producer.failures import ProducerClosed as ProducerClosed
    from barnabas.clients.producer.failures import ProducerError as ProducerError
    from barnabas.clients.producer.failures import QueueFull as QueueFull
    from barnabas.clients.producer.producer import Producer as Producer
    from barnabas.clients.producer.producer import ProducerData as ProducerData
    from barnabas.hooks.views import KeyedMessage as KeyedMessage

# Name -> module; the first use of a name imports its module.
_MODULES = {
    "Blacklist": "barnabas.clients.consumer.topic_filter",
    "Consumer": "barnabas.clients.consumer.connector",
    "ConsumerConfig": "barnabas.clients.consumer.config",
    "ConsumerConnector": "barnabas.clients.consumer.connector",
    "ConsumerRebalanceFailed": "barnabas.clients.consumer.group",
    "ConsumerTimeout": "barnabas.clients.consumer.streams",
    "ErrorMapping": "barnabas.clients.error_mapping",
    "FailedToSend": "barnabas.clients.producer.failures",
    "FetchRequest": "barnabas.clients.consumer.requests",
    "FetchRequestBuilder": "barnabas.clients.consumer.requests",
    "InvalidConfig": "barnabas.clients.failures",
    "KeyedMessage": "barnabas.hooks.views",
    "MessageSizeTooLarge": "barnabas.clients.producer.failures",
    "Producer": "barnabas.clients.producer.producer",
    "ProducerClosed": "barnabas.clients.producer.failures",
    "ProducerData": "barnabas.clients.producer.producer",
    "ProducerError": "barnabas.clients.producer.failures",
    "QueueFull": "barnabas.clients.producer.failures",
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
