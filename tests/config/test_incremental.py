import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import ConfigError
from barnabas.config.incremental import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    append,
    apply_operation,
    subtract,
)
from barnabas.config.settings import TOPIC_SETTINGS

POLICY = TOPIC_SETTINGS["cleanup.policy"]
words = st.lists(st.sampled_from("abcdef"), unique=True)


def test_append_and_subtract():
    assert append("delete", "compact") == "delete,compact"
    assert append("delete, compact", "compact") == "delete,compact"
    assert append(None, "a,a") == "a"
    assert subtract("delete,compact", "delete,absent") == "compact"
    assert subtract("delete", "delete") == ""


@given(words, words)
def test_append_then_subtract_leaves_the_others(have, more):
    both = append(",".join(have), ",".join(more)).split(",")
    assert set(both) - {""} == {*have, *more}
    left = subtract(append(",".join(have), ",".join(more)), ",".join(more))
    assert left == ",".join(part for part in have if part not in more)


def test_operations_on_a_setting():
    assert (
        apply_operation("cleanup.policy", POLICY, APPEND, "delete", "compact") == "delete,compact"
    )
    assert apply_operation("cleanup.policy", POLICY, SUBTRACT, "delete", "delete") == ""
    assert apply_operation("cleanup.policy", POLICY, SET, "delete", "compact") == "compact"
    assert apply_operation("cleanup.policy", POLICY, DELETE, "delete", None) is None


@pytest.mark.parametrize(
    ("name", "operation", "value"),
    [("retention.ms", APPEND, "1"), ("absent", SUBTRACT, "1"), ("cleanup.policy", SET, None)]
    + [("cleanup.policy", 9, "delete")],
)
def test_operations_that_make_no_sense(name, operation, value):
    with pytest.raises(ConfigError, match=name):
        apply_operation(name, TOPIC_SETTINGS.get(name), operation, "1", value)
