"""The old-generation client APIs in Python, over today's protocol: what Kafka 0.7 and 0.8 called
the producer, the simple consumer and the consumer connector.

    with Producer({"metadata.broker.list": "127.0.0.1:9092", "producer.type": "async"}) as producer:
        producer.send(ProducerData("page-views", "member-17", [b"/", b"/jobs"]))

docs/old-clients.md maps each class and method of the old design to these.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.clients.producer.failures import FailedToSend as FailedToSend
    from barnabas.clients.producer.failures import InvalidConfig as InvalidConfig
    from barnabas.clients.producer.failures import MessageSizeTooLarge as MessageSizeTooLarge
    from barnabas.clients.producer.failures import ProducerClosed as ProducerClosed
    from barnabas.clients.producer.failures import ProducerError as ProducerError
    from barnabas.clients.producer.failures import QueueFull as QueueFull
    from barnabas.clients.producer.producer import Producer as Producer
    from barnabas.clients.producer.producer import ProducerData as ProducerData
    from barnabas.hooks.views import KeyedMessage as KeyedMessage

# Name -> module: nothing is imported before it is asked for.
_MODULES = {
    "FailedToSend": "barnabas.clients.producer.failures",
    "InvalidConfig": "barnabas.clients.producer.failures",
    "KeyedMessage": "barnabas.hooks.views",
    "MessageSizeTooLarge": "barnabas.clients.producer.failures",
    "Producer": "barnabas.clients.producer.producer",
    "ProducerClosed": "barnabas.clients.producer.failures",
    "ProducerData": "barnabas.clients.producer.producer",
    "ProducerError": "barnabas.clients.producer.failures",
    "QueueFull": "barnabas.clients.producer.failures",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
