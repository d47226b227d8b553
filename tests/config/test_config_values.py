import pytest

from barnabas.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS, ConfigError
from barnabas.config.values import parse_value, text_of


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "-1", -1),
        ("preallocate", "TRUE", True),
        ("preallocate", "false", False),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("compression.type", "zstd", "zstd"),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
    ],
)
def test_allowed_values(name, text, value):
    assert parse_value(TOPIC_SETTINGS[name], text) == value


# Values that a running Kafka 4.3.1 refuses with INVALID_CONFIG; `0` is outside gzip's range.
@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("retention.ms", "-2", "Allowed: -1 or more ms"),
        ("retention.ms", "abc", "not a whole number"),
        ("retention.ms", "", "not a whole number"),
        ("retention.ms", "1_0", "not a whole number"),
        ("retention.ms", "9223372036854775808", "does not fit"),
        ("retention.ms", "9" * 5000, "not a whole number"),
        ("max.message.bytes", "9999999999", "does not fit"),
        ("min.insync.replicas", "0", "1 or more"),
        ("preallocate", "yes", "not a boolean"),
        ("compression.type", "none", "uncompressed, zstd"),
        ("cleanup.policy", "none", "compact or delete"),
        ("cleanup.policy", "delete,,compact", "compact or delete"),
        ("compression.gzip.level", "0", "1 to 9, or -1"),
        ("min.cleanable.dirty.ratio", "1.1", "0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "not a number"),
        ("message.timestamp.type", "createtime", "CreateTime or LogAppendTime"),
    ],
)
def test_refused_values_say_what_is_allowed(name, text, reason):
    with pytest.raises(ConfigError) as caught:
        parse_value(TOPIC_SETTINGS[name], text)
    (line,) = caught.value.problems
    assert line.startswith(f"{name}={text}") and reason in line and "\n" not in line


def test_words_of_any_case_where_the_table_says_so():
    setting = BROKER_SETTINGS["group.consumer.migration.policy"]
    assert parse_value(setting, "UPGRADE") == "UPGRADE"


@pytest.mark.parametrize("text", ["true", "5", "a,b", "0.5", ""])
def test_text_of_gives_back_what_was_parsed(text):
    name = {
        "true": "log.preallocate",
        "5": "num.partitions",
        "a,b": "plugins",
        "0.5": "log.cleaner.min.cleanable.ratio",
        "": "plugins",
    }[text]
    assert text_of(parse_value(BROKER_SETTINGS[name], text)) == text
