"""A dead-letter interceptor: records that do not match a topic's JSON Schema go to another topic.

    plugins=dead-letter
    plugin.dead-letter.schema=/etc/barnabas/order.json
    produce.interceptors=dead-letter        (a setting of the topic `orders`)

The plugin appends a record that does not match the JSON Schema (see json_schema.py) to the topic
`orders.dead` (option `suffix`) with its key, value and headers, and two more headers:
`dead-letter.topic` and `dead-letter.reason`. The broker appends the other records to their own
topic and answers the producer as if it had appended all. Dead letters are on disk before the
producer gets its response; when the plugin cannot write them it rejects the whole batch. A batch
that a producer sends again may leave its dead letters twice. The plugin needs `isolation=thread`,
because it appends records."""

from barnabas.hooks import Record, RecordBatch, Replace, Services, hookimpl
from barnabas.hooks.options import Option, Options
from barnabas.plugins.json_schema import JsonSchema

TOPIC = "dead-letter.topic"
REASON = "dead-letter.reason"


class DeadLetter:
    """Moves records that do not match a JSON Schema to a topic of dead letters."""

    OPTIONS = {
        "schema": Option("text", "a file with the JSON Schema of values"),
        "key.schema": Option("text", "a file with the JSON Schema of keys; none: any key", ""),
        "suffix": Option("text", "the end of the name of the topic of dead letters", ".dead"),
    }  # fmt: skip

    def __init__(self, options: Options) -> None:
        schema = {"file": options["schema"], "key.file": options["key.schema"], "tombstones": True}
        self._judge = JsonSchema(schema)
        self._suffix = options["suffix"]
        if not self._suffix:
            raise ValueError("suffix is empty: dead letters would go to their own topic")
        self._services: Services | None = None

    @hookimpl
    def broker_started(self, services: Services | None) -> None:
        if services is None:
            raise ValueError("dead-letter appends records: it needs isolation=thread")
        self._services = services

    @hookimpl
    def intercept_produce(self, batch: RecordBatch) -> Replace | None:
        kept: list[Record | None] = []
        dead: list[Record] = []
        for record in batch.records:
            reason = self._judge.problem(record)
            kept.append(None if reason else record)
            if reason:
                headers = [(TOPIC, batch.topic.encode()), (REASON, reason.encode())]
                dead.append(
                    Record(
                        record.value,
                        record.key,
                        timestamp=record.timestamp,
                        headers=[*record.headers, *headers],
                    )
                )
        if not dead:
            return None
        if self._services is None:
            raise RuntimeError("the broker has not started")
        topic = batch.topic + self._suffix
        self._services.create_topic(topic, 1, {})
        self._services.append(topic, 0, dead)
        return Replace(kept)
