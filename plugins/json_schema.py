"""Record validation: values (and keys) must be JSON that a JSON Schema allows.

    plugins=json-schema
    plugin.json-schema.file=/etc/barnabas/order.json
    produce.interceptors=json-schema        (of the topic)

A batch with an invalid record is refused as a whole, and the producer's answer names the record and
the reason. For two schemas give each a name: `plugins=orders,users`,
`plugin.orders.use=json-schema`. Needs the package `jsonschema` (pip install 'barnabas[plugins]'). A
tombstone, a record without a value, passes unless `tombstones=false`."""

import json
from pathlib import Path
from typing import Any

from barnabas.hooks import Option, Options, Record, RecordBatch, Reject, hookimpl

WORDS_MAX = 300


class JsonSchema:
    """Refuses batches with a record whose JSON a schema does not allow."""

    OPTIONS = {
        "file": Option("text", "a file with the JSON Schema of values"),
        "key.file": Option("text", "a file with the JSON Schema of keys; none: any key", ""),
        "tombstones": Option("boolean", "whether records without a value pass", True),
    }

    def __init__(self, options: Options) -> None:
        self._value = _validator(options["file"])
        self._key = _validator(options["key.file"]) if options["key.file"] else None
        self._tombstones = options["tombstones"]

    @hookimpl
    def intercept_produce(self, batch: RecordBatch) -> Reject | None:
        for index, record in enumerate(batch.records):
            reason = self.problem(record)
            if reason:
                return Reject(f"record {index}: {reason}"[:WORDS_MAX])
        return None

    def problem(self, record: Record) -> str:
        """The reason why a record is invalid; "" for a valid one."""
        if record.value is None:
            found = "" if self._tombstones else "it has no value"
        else:
            found = _problem("value", record.value, self._value)
        if found or self._key is None:
            return found
        return "it has no key" if record.key is None else _problem("key", record.key, self._key)


def _validator(path: str) -> Any:
    from jsonschema.validators import validator_for

    schema = json.loads(Path(path).read_text(encoding="utf-8"))
    kind = validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


def _problem(what: str, data: bytes, validator: Any) -> str:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return f"its {what} is no JSON"
    error = next(iter(validator.iter_errors(value)), None)
    if error is None:
        return ""
    where = "".join(f"[{part!r}]" for part in error.absolute_path)
    return f"its {what}{where}: {error.message}"
