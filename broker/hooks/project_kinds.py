"""The plugins that `barnabas plugins new NAME --hook KIND` writes: one for each kind of hook.

Each kind is a plugin, a test of it, the options that the test sets, and the lines of the README
that say how it is used. `{name}`, `{cls}` and `{module}` stand for the new plugin's names; other
braces are doubled. docs/hooks.md shows the plugin of each kind as its example, and a test installs
each project and runs its tests.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of plugin. `option`, `default`, `meaning`: its only option. `use`: commands that try
    the installed plugin."""

    hook: str
    summary: str
    plugin: str
    test: str
    option: str
    default: str
    meaning: str
    use: str


INTERCEPTOR = Kind(
    hook="intercept_produce",
    summary="rejects records whose value is longer than the option allows",
    option="longest",
    default="1000",
    meaning="largest size of a value in bytes",
    use="""\
    barnabas start --set plugins={name} --set plugin.{name}.longest=1000
    barnabas topics create news --config produce.interceptors={name}
""",
    plugin='''\
from barnabas import hookimpl
from barnabas.hooks import Option, RecordBatch, Reject


class {cls}:
    """Rejects long records."""

    OPTIONS = {{"longest": Option("integer", "largest size of a value", default=1000, least=0)}}

    def __init__(self, options):
        self.longest = options["longest"]

    @hookimpl
    def intercept_produce(self, batch: RecordBatch):
        for index, record in enumerate(batch.records):
            if record.value is not None and len(record.value) > self.longest:
                return Reject(f"record {{index}} has {{len(record.value)}} bytes")
        return None
''',
    test="""\
import pytest

from barnabas.errors import InvalidRecord

SETTINGS = {{"plugins": "{name}", "plugin.{name}.longest": "10"}}


@pytest.mark.broker(SETTINGS)
@pytest.mark.topic(configs={{"produce.interceptors": "{name}"}})
def test_long_records_are_refused(broker, topic, produce):
    produce(topic, [b"short"])
    with pytest.raises(InvalidRecord, match="record 1 has 11 bytes"):
        produce(topic, [b"short", b"much longer"])
    broker.assert_records(topic, ["short"])


def test_the_hook_alone(plugin_batch):
    from {module} import {cls}

    made = {cls}({{"longest": 3}})
    assert made.intercept_produce(plugin_batch([b"abc"])) is None
    assert made.intercept_produce(plugin_batch([b"abcd"])) is not None
""",
)

RETENTION = Kind(
    hook="deletable_segments",
    summary="keeps the newest segments of each partition and lets the broker delete the others",
    option="segments",
    default="10",
    meaning="closed segments of each partition to keep",
    use="""\
    barnabas start --set plugins={name} --set plugin.{name}.segments=10
    barnabas topics create news --config retention.policy={name}
""",
    plugin='''\
from barnabas import hookimpl
from barnabas.hooks import LogView, Option


class {cls}:
    """Keeps the newest segments of each partition."""

    OPTIONS = {{"segments": Option("integer", "closed segments to keep", default=10, least=0)}}

    def __init__(self, options):
        self.segments = options["segments"]

    @hookimpl
    def deletable_segments(self, log: LogView, now_ms: int) -> int:
        closed = [segment for segment in log.segments if not segment.is_active]
        return max(len(closed) - self.segments, 0)
''',
    test="""\
import time

import pytest

from barnabas.hooks import LogView, SegmentView

SETTINGS = {{
    "plugins": "{name}",
    "plugin.{name}.segments": "2",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}}


@pytest.mark.broker(SETTINGS)
@pytest.mark.topic(configs={{"retention.policy": "{name}", "segment.bytes": "14000"}})
def test_old_segments_are_deleted(broker, topic, produce):
    for _ in range(6):
        produce(topic, [bytes(10_000)])  # each a segment of its own
    deadline = time.monotonic() + 20
    while len(broker.records(topic)) > 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [record.offset for record in broker.records(topic)] == [3, 4, 5]


def segment(base_offset, is_active=False):
    return SegmentView(base_offset, base_offset + 10, 1000, 0, is_active)


def test_the_hook_alone():
    from {module} import {cls}

    made = {cls}({{"segments": 2}})
    segments = (segment(0), segment(10), segment(20), segment(30, is_active=True))
    log = LogView("news", 0, segments, 40, -1, -1)
    assert made.deletable_segments(log, 0) == 1
    assert made.deletable_segments(log._replace(segments=segments[2:]), 0) == 0
""",
)

PARTITIONER = Kind(
    hook="choose_partitions",
    summary="sends records whose key has a prefix to partition 0, and others by their key",
    option="prefix",
    default="vip-",
    meaning="prefix of the keys of partition 0",
    use="""\
    barnabas produce news --key-separator : --partitioner {name} --option plugin.{name}.prefix=vip-

A producer of barnabas.clients takes it as `partitioner.class={name}`. The broker does not load it.
""",
    plugin='''\
from collections.abc import Sequence
from zlib import crc32

from barnabas import hookimpl
from barnabas.hooks import Option


class {cls}:
    """Keeps partition 0 for keys that begin with a prefix."""

    OPTIONS = {{"prefix": Option("text", "prefix of the keys of partition 0", "vip-")}}

    def __init__(self, options):
        self.prefix = options["prefix"].encode()

    @hookimpl
    def choose_partitions(self, encoded: Sequence[bytes | None], partition_count: int):
        return [self._partition(key or b"", partition_count) for key in encoded]

    def _partition(self, key: bytes, partition_count: int) -> int:
        if key.startswith(self.prefix) or partition_count == 1:
            return 0
        return 1 + crc32(key) % (partition_count - 1)
''',
    test="""\
import pytest

from barnabas.clients import KeyedMessage, Producer


@pytest.mark.topic(partitions=3)
def test_keys_with_the_prefix_go_to_partition_0(broker, topic):
    producer = Producer({{
        "metadata.broker.list": broker.bootstrap_servers,
        "partitioner.class": "{name}",
        "plugin.{name}.prefix": "vip-",
        "serializer.class": "string",
    }})
    producer.send([KeyedMessage(topic, "a", "vip-1"), KeyedMessage(topic, "b", "other")])
    producer.close()
    found = {{record.value: record.partition for record in broker.records(topic)}}
    assert found[b"a"] == 0 and found[b"b"] in (1, 2)


def test_the_hook_alone():
    from {module} import {cls}

    made = {cls}({{"prefix": "vip-"}})
    assert made.choose_partitions([b"vip-1", b"vip-2"], 4) == [0, 0]
    assert all(place in (1, 2, 3) for place in made.choose_partitions([b"x", None], 4))
    assert made.choose_partitions([b"x"], 1) == [0]
""",
)

ENCODER = Kind(
    hook="encode, decode",
    summary="writes text in capital letters, in the encoding of the option",
    option="encoding",
    default="utf-8",
    meaning="encoding of the text, by Python's name",
    use="""\
    barnabas produce news --encoder {name}
    barnabas consume news --end --decoder {name}

A producer of barnabas.clients takes it as `serializer.class={name}`. The broker does not load it.
""",
    plugin='''\
from collections.abc import Sequence

from barnabas import hookimpl
from barnabas.hooks import Option


class {cls}:
    """Text in capital letters."""

    OPTIONS = {{"encoding": Option("text", "encoding of the text", "utf-8")}}

    def __init__(self, options):
        self.encoding = options["encoding"]

    @hookimpl
    def encode(self, data: Sequence[str | None]) -> Sequence[bytes | None]:
        return [None if text is None else text.upper().encode(self.encoding) for text in data]

    @hookimpl
    def decode(self, data: Sequence[bytes]) -> Sequence[str]:
        return [row.decode(self.encoding) for row in data]
''',
    test="""\
from barnabas.clients import KeyedMessage, Producer


def test_values_are_encoded(broker, topic):
    settings = {{"metadata.broker.list": broker.bootstrap_servers, "serializer.class": "{name}"}}
    producer = Producer(settings)
    producer.send([KeyedMessage(topic, "hello")])
    producer.close()
    broker.assert_records(topic, ["HELLO"])


def test_the_hooks_alone():
    from {module} import {cls}

    made = {cls}({{"encoding": "utf-16-le"}})
    assert made.encode(["a", None]) == [b"A\\x00", None]
    assert made.decode(made.encode(["hello"])) == ["HELLO"]
""",
)

POLICY = Kind(
    hook="check_new_topic",
    summary="refuses topics whose names do not begin with a prefix",
    option="prefix",
    default="team-",
    meaning="prefix of the names of topics",
    use="""\
    barnabas start --set plugins={name} --set plugin.{name}.prefix=team-
    barnabas topics create team-news
""",
    plugin='''\
from barnabas import hookimpl
from barnabas.hooks import NewTopicView, Option


class {cls}:
    """Refuses topics whose names do not begin with a prefix."""

    OPTIONS = {{"prefix": Option("text", "prefix of the names of topics", "team-")}}

    def __init__(self, options):
        self.prefix = options["prefix"]

    @hookimpl
    def check_new_topic(self, topic: NewTopicView) -> str | None:
        if topic.name.startswith(self.prefix):
            return None
        return f"the name of a topic must begin with {{self.prefix}}"
''',
    test="""\
import pytest

from barnabas.errors import PolicyViolation
from barnabas.hooks import NewTopicView

SETTINGS = {{"plugins": "{name}", "plugin.{name}.prefix": "team-"}}


@pytest.mark.broker(SETTINGS)
def test_other_names_are_refused(broker):
    broker.create_topic("team-news")
    with pytest.raises(PolicyViolation, match="must begin with team-"):
        broker.create_topic("news")


def test_the_hook_alone():
    from {module} import {cls}

    made = {cls}({{"prefix": "x"}})
    assert made.check_new_topic(NewTopicView("xyz", 1, 1, {{}})) is None
    assert made.check_new_topic(NewTopicView("abc", 1, 1, {{}})) is not None
""",
)

KINDS = {
    "interceptor": INTERCEPTOR,
    "retention": RETENTION,
    "partitioner": PARTITIONER,
    "encoder": ENCODER,
    "topic-policy": POLICY,
}
