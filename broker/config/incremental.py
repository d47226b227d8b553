"""IncrementalAlterConfigs on plain values: SET, DELETE, and APPEND or SUBTRACT for lists."""

from __future__ import annotations

from barnabas.config.settings import ConfigError, Setting
from barnabas.config.values import list_of

SET, DELETE, APPEND, SUBTRACT = range(4)


def append(current: str | None, more: str) -> str:
    """Returns the list with the new elements at its end; elements that it contains already keep
    their position."""
    found = list(list_of(current or ""))
    found += [part for part in dict.fromkeys(list_of(more)) if part not in found]
    return ",".join(found)


def subtract(current: str | None, less: str) -> str:
    """Returns the list without these elements; an element that it does not contain is no error."""
    gone = set(list_of(less))
    return ",".join(part for part in list_of(current or "") if part not in gone)


def apply_operation(
    name: str, setting: Setting | None, operation: int, current: str | None, value: str | None
) -> str | None:
    """Returns the new text of a setting; None: it has no value of its own then. `current`: the
    value in force. Raises ConfigError."""
    if operation == DELETE:
        return None
    if value is None:
        raise ConfigError(f"{name}: a value is missing. Give one, or delete the setting.")
    if operation == SET:
        return value
    if operation not in (APPEND, SUBTRACT):
        raise ConfigError(f"{name}: operation {operation} is not known. Use 0, 1, 2 or 3.")
    if setting is None or setting.type != "LIST":
        raise ConfigError(f"{name}: not a list, so nothing can be appended or subtracted. Set it.")
    return append(current, value) if operation == APPEND else subtract(current, value)
