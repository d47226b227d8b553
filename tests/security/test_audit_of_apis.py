"""The audit log of every administrative request: who was denied what, and who changed what."""

import logging

import pytest
from compat.support import Wire
from security.access_questions import TOPIC, UNKNOWN_ID, ask, questions
from security.ruled_broker import ANONYMOUS, ruled_broker

from barnabas.api.table import api_table
from barnabas.controller.topics import NewTopic

# By API key: what the line of a change says, the operation and the type of its resource.
CHANGES = {
    19: "CREATE TOPIC",
    20: "DELETE TOPIC",
    21: "DELETE TOPIC",
    30: "ALTER CLUSTER",
    31: "ALTER CLUSTER",
    33: "ALTER_CONFIGS TOPIC",
    34: "ALTER CLUSTER",
    37: "ALTER TOPIC",
    42: "DELETE GROUP",
    43: "ALTER CLUSTER",
    44: "ALTER_CONFIGS TOPIC",
    45: "ALTER CLUSTER",
    47: "DELETE GROUP",
    49: "ALTER_CONFIGS CLUSTER",
    51: "ALTER CLUSTER",
    57: "ALTER CLUSTER",
}
# What is denied first, where that is another operation.
DENIED_FIRST = {20: "DESCRIBE TOPIC"}


def lines_of(ruled, caplog, key):
    """What the log says about the questions of an API, in its last version."""
    version = api_table()[key].version_max
    with Wire(ruled.address) as wire:
        for _name, fields in questions(key, version, UNKNOWN_ID):
            ruled.authorizer.audit._lines_ns.clear()  # as if a second had passed
            ask(wire, key, version, fields)
    return [r.getMessage() for r in caplog.records if r.name == "barnabas.authorizer"]


@pytest.fixture(scope="module", params=["User:admin", ANONYMOUS], ids=["denied", "permitted"])
def ruled(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    with ruled_broker(folder, **{"super.users": request.param}) as made:
        made.broker.node.serving.administration.topics.create(NewTopic(TOPIC, 1, 1), False)
        made.is_permitted = request.param == ANONYMOUS
        yield made


@pytest.mark.parametrize("key", CHANGES)
def test_each_change_that_is_asked_for_has_a_line(ruled, caplog, key):
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    lines = lines_of(ruled, caplog, key)
    if ruled.is_permitted:
        verb = f"may {CHANGES[key]}"
    else:
        verb = "was denied " + DENIED_FIRST.get(key, CHANGES[key]).replace(" ", " on ")
    assert any(f"'{ANONYMOUS}' from 127.0.0.1 {verb} '" in line for line in lines), lines
