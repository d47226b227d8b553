"""Requests 48 and 49 as plain calls."""

from barnabas.wire import request

EXACT, DEFAULT, SPECIFIED = range(3)


def alter(wire, *entries, validate_only=False, version=1):
    """Entries: (names by type, values by key; None removes). Returns the answers in their order:
    (names by type, error code, text)."""
    ask = request(49)
    entry, part, op = (ask.struct(path) for path in ("entries", "entries.entity", "entries.ops"))
    rows = [
        entry(
            entity=[part(entityType=kind, entityName=name) for kind, name in dict(names).items()],
            ops=[
                op(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in (values.items() if isinstance(values, dict) else values)
            ],
        )
        for names, values in entries
    ]
    answer = wire.call(49, version, ask.cls(entries=rows, validateOnly=validate_only))
    return [
        ({e.entityType: e.entityName for e in row.entity}, row.errorCode, row.errorMessage)
        for row in answer.entries
    ]


def set_quota(wire, names, **values):
    """Sets or removes (None) quotas of one entity."""
    assert alter(wire, (names, values)) == [(dict(names), 0, None)]


def described(wire, *components, strict=False, version=1):
    """Components: (type, match type, match). The error as (code, text), or the quotas: a dict by
    sorted names."""
    ask = request(48)
    part = ask.struct("components")
    rows = [part(entityType=kind, matchType=how, match=match) for kind, how, match in components]
    answer = wire.call(48, version, ask.cls(components=rows, strict=strict))
    if answer.entries is None:
        return answer.errorCode, answer.errorMessage
    assert answer.errorCode == 0 and answer.errorMessage == ""
    return {
        tuple(sorted(((e.entityType, e.entityName) for e in row.entity), key=str)): {
            value.key: value.value for value in row.values
        }
        for row in answer.entries
    }
