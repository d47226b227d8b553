"""Record validation: values (and keys) must be JSON that matches a JSON Schema.

    plugins=json-schema
    plugin.json-schema.file=/etc/barnabas/order.json
    produce.interceptors=json-schema        (a setting of the topic)

The plugin rejects a whole batch when one of its records is invalid; the producer's response names
the record and the reason. For two schemas give each a name: `plugins=orders,users`,
`plugin.orders.use=json-schema`. The plugin needs the package `jsonschema` (pip install
'barnabas[plugins]'). A tombstone, a record without a value, is valid unless `tombstones=false`."""

import json
from pathlib import Path
from typing import Any

from barnabas.hooks import Option, Options, Record, RecordBatch, Reject, hookimpl

WORDS_MAX = 300


class JsonSchema:
    """Rejects batches with a record whose JSON does not match a schema."""

    OPTIONS = {
        "file": Option("text", "a file with the JSON Schema of values"),
        "key.file": Option("text", "a file with the JSON Schema of keys; none: any key", ""),
        "tombstones": Option("boolean", "whether records without a value are valid", True),
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
        """Returns why a record is invalid; "" for a valid record."""
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
        return f"its {what} is not JSON"
    error = next(iter(validator.iter_errors(value)), None)
    if error is None:
        return ""
    where = "".join(f"[{part!r}]" for part in error.absolute_path)
    return f"its {what}{where}: {error.message}"
