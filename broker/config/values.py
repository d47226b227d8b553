"""Parses the text of a setting to a typed value, and checks whether the value is allowed.

Parsing follows Kafka's ConfigDef: white space around a value is removed, booleans may be in upper
or lower case, lists are split at commas, null stays None. The next file to read is properties.py.
"""

from __future__ import annotations

from barnabas.config.settings import ConfigError, Setting

Value = bool | int | float | str | tuple[str, ...] | None
INTEGER_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}


def list_of(text: str) -> tuple[str, ...]:
    """Returns the elements of a list between commas, without white space around them."""
    text = text.strip()
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _is_whole(text: str) -> bool:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return digits.isascii() and digits.isdigit() and len(digits) <= 20


def parse_value(setting: Setting, text: str | None) -> Value:
    """Returns the typed value of `text`. Raises ConfigError for a wrong type or range."""
    if text is None:
        return None
    value, wrong = _typed(setting, text)
    if not wrong and not _allows(setting, value):
        wrong = "this value is not allowed"
    if wrong:
        raise ConfigError(describe_problem(setting, text, wrong))
    return value


def describe_problem(setting: Setting, text: str, wrong: str) -> str:
    """Returns the error of a setting: its value unless it is a secret, `wrong`, and the allowed
    values."""
    shown = "[hidden]" if setting.is_sensitive else text.strip()
    unit = f" {setting.unit}" if setting.unit else ""
    return (
        f"{setting.name}={shown}: {wrong}. Allowed: {allowed_text(setting)}{unit}."
        " Correct the value or remove the setting."
    )


def _typed(setting: Setting, text: str) -> tuple[Value, str]:
    kind, text = setting.type, text if setting.is_sensitive else text.strip()
    if kind in INTEGER_BITS:
        if not _is_whole(text):
            return None, "not a whole number"
        number = int(text)
        limit = 1 << (INTEGER_BITS[kind] - 1)
        return number, "" if -limit <= number < limit else f"does not fit into {kind}"
    if kind == "BOOLEAN":
        return text.lower() == "true", "" if text.lower() in ("true", "false") else "not a boolean"
    if kind == "LIST":
        return list_of(text), ""
    if kind == "DOUBLE":
        try:
            number_double = float(text)
        except ValueError:
            return None, "not a number"
        return number_double, "not a number" if number_double != number_double else ""
    return text, ""


def _allows(setting: Setting, value: Value) -> bool:
    if not setting.valid or value is None:
        return True
    if isinstance(value, tuple):
        return all(_allows_one(setting.valid, part) for part in value)
    return _allows_one(setting.valid, value)


def _allows_one(valid: str, value: bool | int | float | str) -> bool:
    if isinstance(value, str):
        any_case = valid.startswith("~")
        words = valid.removeprefix("~").split("|")
        return (value.lower() if any_case else value) in words
    for alternative in valid.split("|"):
        if alternative.startswith(">="):
            if value >= float(alternative[2:]):
                return True
        elif ".." in alternative:
            low, _, high = alternative.partition("..")
            if float(low) <= value <= float(high):
                return True
        elif value == float(alternative):
            return True
    return False


def allowed_text(setting: Setting) -> str:
    """Describes the allowed values in words: the column `valid`, or the type if it is blank."""
    if not setting.valid:
        plain = {"BOOLEAN": "true or false", "LIST": "names between commas", "DOUBLE": "a number"}
        if setting.type in INTEGER_BITS:
            return f"a whole number of {INTEGER_BITS[setting.type]} bits"
        return plain.get(setting.type, "text")
    said = []
    for alternative in setting.valid.removeprefix("~").split("|"):
        if alternative.startswith(">="):
            said.append(alternative[2:] + " or more")
        else:
            said.append(alternative.replace("..", " to "))
    has_range = ">=" in setting.valid or ".." in setting.valid
    joined = ", ".join(said) if len(said) > 2 else (", or " if has_range else " or ").join(said)
    return "any of " + joined if setting.type == "LIST" else joined


def text_of(value: Value) -> str | None:
    """Returns a typed value as the text that DescribeConfigs shows."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
