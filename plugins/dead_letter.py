"""A dead-letter interceptor: records that do not match a topic's JSON Schema go to another topic.

    plugins=dead-letter
    plugin.dead-letter.schema=/etc/barnabas/order.json
    produce.interceptors=dead-letter        (of the topic `orders`)

A record that does not match the JSON Schema (see json_schema.py) is appended to the topic
`orders.dead` (`suffix`) with its key, value and headers, and two more headers: `dead-letter.topic`
and `dead-letter.reason`. The other records are appended to their own topic; the producer's answer
is the same as if all were. Dead letters are on disk before the producer gets its answer; when they
cannot be written the whole batch is refused. A batch that a producer sends again may leave its dead
letters twice. Runs inside the broker only, because it appends."""

from barnabas.hooks import Record, RecordBatch, Replace, Services, hookimpl
from barnabas.hooks.options import Option, Options
from barnabas.plugins.json_schema import JsonSchema

TOPIC = "dead-letter.topic"
REASON = "dead-letter.reason"


class DeadLetter:
    """Records that a JSON Schema does not allow go to a topic of dead letters."""

    OPTIONS = {
        "schema": Option("text", "a file with the JSON Schema of values"),
        "key.schema": Option("text", "a file with the JSON Schema of keys; none: any key", ""),
        "suffix": Option("text", "what the name of the topic of dead letters ends in", ".dead"),
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
