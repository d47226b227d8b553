"""The matrix of clients that are tested with each other, and how to create each client.

A cell is (producer, codec, timestamp type); every client of another family reads it.
"""

import importlib
import shutil

from compat.java import driver
from compat.node import client as node
from compat.support import APPEND_TIME, CODECS, CREATE_TIME

CLIENTS = {
    "confluent_kafka": "compat.confluent_kafka.client:Confluent",
    "kafka_python": "compat.kafka_python.client:KafkaPython",
    "aiokafka": "compat.aiokafka.client:AioKafka",
    "kcat": "compat.kcat.client:Kcat",
    "java_27": "compat.java_27.client:Java27",
    "java_43": "compat.java_4x.client:Java43",
    "java_44": "compat.java_4x.client:Java44",
}
# These are not in the cells, because gzip is their only codec.
NODE_CLIENTS = {
    "kafkajs": "compat.node.client:KafkaJs",
    "platformatic": "compat.node.client:Platformatic",
}
JAVA_VERSIONS = {"java_27": "2.7.2", "java_43": "4.3.1", "java_44": "4.4.0"}
FAMILIES = {name: name for name in CLIENTS} | {
    "confluent_kafka": "librdkafka",
    "kcat": "librdkafka",
    "java_27": "java",
    "java_43": "java",
    "java_44": "java",
}
TIMES = (CREATE_TIME, APPEND_TIME)
CELLS = [(name, codec, kind) for name in CLIENTS for codec in CODECS for kind in TIMES]
PAIRS = [
    (*cell, reader) for cell in CELLS for reader in CLIENTS if FAMILIES[reader] != FAMILIES[cell[0]]
]


def in_short_form(pair: tuple[str, str, str, str]) -> bool:
    """Whether the short form reads the cell with this reader: of each producer and reader two
    codecs, one with each timestamp type. They differ from reader to reader, so that every client
    reads every codec, and every codec of a producer is read."""
    name, codec, kind, reader = pair
    names = [*CLIENTS]
    index = names.index(name) + names.index(reader) + 2 * TIMES.index(kind)
    return codec == CODECS[index % len(CODECS)]


def client_class(name: str) -> type:
    """Returns the class of a client, by its name in CLIENTS."""
    module, attribute = (CLIENTS | NODE_CLIENTS)[name].split(":")
    found: type = getattr(importlib.import_module(module), attribute)
    return found


def cannot_run_client(name: str) -> str | None:
    """Why a client cannot run here, or None."""
    if name == "kcat":
        return None if shutil.which("kcat") else "kcat is not installed"
    if name in NODE_CLIENTS:
        return node.missing()
    if name in JAVA_VERSIONS:
        return driver.missing(JAVA_VERSIONS[name])
    return None
