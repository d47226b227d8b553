"""`barnabas dev`: a broker, its console, and a topic with sample data, to try things with.

It is `barnabas start` with other defaults: data in a directory of its own that is removed at the
end, few partitions of internal topics, and the console. When the broker serves clients, the topic
`orders` gets an hour of sample records, then a new record now and then, so that rates, offsets and
consumers have something to show.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.parser import settings_option, usage_error
from barnabas.cli.start import begin_logging, refuse, serve
from barnabas.client import ClientError, Cluster, Producer
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.settings import UnknownSetting
from barnabas.controller.topics import NewTopic
from barnabas.errors import KafkaError, TopicAlreadyExists
from barnabas.storage.scratch_dir import make_scratch_dir, remove_tree

if TYPE_CHECKING:
    from barnabas.cext.record.records import Header
    from barnabas.node import Node

log = logging.getLogger("barnabas.dev")

TOPIC = "orders"
PARTITIONS = 3
PAST_RECORDS, PAST_MS = 600, 3_600_000  # the records of the last hour
RATE_MAX = 1000
END_TIMEOUT_S = 10

DEFAULTS = {
    "console.port": "9500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
PLACES = ("log.dirs", "log.dir")

EPILOG = f"""\
The topic {TOPIC} has JSON values, keyed by customer: an hour of sample records, then --rate records
a second. Without --data nothing is left when the broker ends; with it, the next start goes on with
the data. --set overrides every default, as in `barnabas start`.

examples:
  barnabas dev
  barnabas dev --data ./data --rate 0
  barnabas dev --set listeners=PLAINTEXT://127.0.0.1:19092 --set console.port=19500

in another terminal:
  barnabas consume {TOPIC} --count 5 --key
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--data", metavar="DIR", help="keep the data in this directory")
    parser.add_argument(
        "--rate",
        metavar="N",
        type=rate,
        default=1.0,
        help="new sample records in a second; 0: none (1)",
    )
    settings_option(parser, "a setting of the broker")
    parser.add_argument("--quiet", action="store_true", help="log only warnings and errors")


def rate(text: str) -> float:
    value = float(text)
    if not 0 <= value <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"give a number from 0 to {RATE_MAX}")
    return value


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    scratch = None
    try:
        given = BrokerConfig.load(None, arguments.settings)
        settings = {name: text for name, text in DEFAULTS.items() if not given.is_set(name)}
        if has_no_console():
            settings.pop("console.port", None)
        if arguments.data is not None:
            settings["log.dirs"] = str(Path(arguments.data).absolute())
        elif not any(given.is_set(name) for name in PLACES):
            scratch = make_scratch_dir(durable=False)
            settings |= {"log.dirs": str(scratch), "log.durability": "os"}
        overrides = [f"{name}={text}" for name, text in settings.items()]
        config = BrokerConfig.load(None, [*overrides, *arguments.settings])
        say = begin_logging(config, arguments.quiet)
        if "console.port" not in config.values:
            say("no console: run `pip install 'barnabas[console]'`")

        @contextmanager
        def samples(node: Node) -> Iterator[None]:
            with Samples(node, arguments.rate, say):
                yield

        return serve(config, say, began, beside=samples)
    except UnknownSetting as error:
        usage_error(str(error))
    except ConfigError as error:
        return refuse(*error.problems)
    finally:
        if scratch is not None:
            remove_tree(scratch)


def has_no_console() -> bool:
    """Returns whether packages of the extra `console` are missing."""
    try:
        import barnabas.console.site  # noqa: F401
    except ModuleNotFoundError:
        return True
    return False


class Order(NamedTuple):
    """A sample record."""

    key: bytes
    value: bytes
    headers: list[Header]
    timestamp_ms: int


def orders(first: int, times_ms: Iterable[int], seed: int = 0) -> Iterator[Order]:
    """Yields an order for each time (ms since 1970), numbered from `first`. The same seed gives the
    same orders."""
    chance = random.Random(seed)
    for number, at_ms in enumerate(times_ms, first):
        items = chance.randint(1, 5)
        value = {
            "order": number,
            "customer": f"c-{chance.randint(1, 40):03}",
            "items": items,
            "total": round(items * chance.uniform(2, 60), 2),
            "currency": chance.choice(("EUR", "EUR", "USD", "GBP")),
        }
        source = chance.choice((b"web", b"web", b"app", b"shop"))
        yield Order(
            str(value["customer"]).encode(), json.dumps(value).encode(), [("source", source)], at_ms
        )


class Samples:
    """Creates the topic with its past records, and a thread that goes on with `rate` records a
    second."""

    def __init__(self, node: Node, rate: float, say: Callable[..., None]) -> None:
        self._node, self._rate, self._say = node, rate, say
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="samples", daemon=True)

    def __enter__(self) -> Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(END_TIMEOUT_S)

    def _write(self) -> None:
        row = self._node.listening[0]
        try:
            with Cluster(f"{row.host}:{row.port}") as cluster:
                self._write_to(cluster)
        except (KafkaError, ClientError) as error:  # the broker goes on without samples
            log.warning("no more sample records: %s", error)

    def _write_to(self, cluster: Cluster) -> None:
        is_new = self._create_topic()
        logs = [self._node.loaded.replicas.log(TOPIC, index) for index in range(PARTITIONS)]
        number = 1 + sum(row.end_offset for row in logs)
        then = f"then {self._rate:g} a second" if self._rate else "and no more"
        now_ms = time.time_ns() // 1_000_000
        with Producer(cluster, TOPIC) as producer:
            if is_new:
                for order in orders(
                    number, range(now_ms - PAST_MS, now_ms, PAST_MS // PAST_RECORDS)
                ):
                    send(producer, order)
                producer.flush()
                number += PAST_RECORDS
                self._say(f"samples: topic {TOPIC} has {PAST_RECORDS} records, {then}")
            else:
                self._say(f"samples: topic {TOPIC} goes on at order {number}, {then}")
            for order in orders(number, self._times_ms(), seed=now_ms):
                send(producer, order)
                producer.flush()

    def _create_topic(self) -> bool:
        """Returns whether the topic is new."""
        topics = self._node.serving.administration.topics
        try:
            topics.create(NewTopic(TOPIC, partition_count=PARTITIONS, configs={}))
        except TopicAlreadyExists:
            return False
        return True

    def _times_ms(self) -> Iterator[int]:
        while self._rate and not self._ended.wait(1 / self._rate):
            yield time.time_ns() // 1_000_000


def send(producer: Producer, order: Order) -> None:
    producer.send(order.value, order.key, headers=order.headers, timestamp=order.timestamp_ms)
