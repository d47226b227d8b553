"""Two brokers of barnabas write the znodes of two brokers of Kafka, in the same forms, as recorded
from Kafka 2.8 and 3.9 (znode_forms.py); docs/znodes.md shows all of them."""

import json
from pathlib import Path

import pytest
from zookeeper.znode_forms import OURS, RECORDED, form_of, forms_of_ours, table

from barnabas.metadata.znodes import LogDirEvent

pytestmark = pytest.mark.takes(seconds=15)

LOG_DIR_EVENT = "/log_dir_event_notification/log_dir_event_S"
KNOWN = json.loads(RECORDED.read_text())
# Place: why ours differs from Kafka 3.9's.
DIFFERENT = {
    "/controller": "version 2 has the epoch of a KRaft controller",
    "/feature": "version 1 is what both releases read",
    "/delegation_token": "made with the first token",
    "/delegation_token/token_changes": "not written: brokers watch the tokens",
    "/delegation_token/tokens": "made with the first token",
    "/isr_change_notification/isr_change_S": "written as up to inter.broker.protocol.version 2.6",
    LOG_DIR_EVENT: "written when a log fails, in Kafka's form (below); no log fails here",
}


def test_two_brokers_write_what_is_recorded(own_server, tmp_path):
    assert forms_of_ours(tmp_path, own_server) == KNOWN[OURS]


def test_ours_have_kafkas_forms():
    ours, theirs = KNOWN[OURS], KNOWN["3.9.2"]
    different = {place for place in {*ours, *theirs} if ours.get(place) != theirs.get(place)}
    assert different == DIFFERENT.keys()
    note = "/isr_change_notification/isr_change_S"
    assert ours[note] == KNOWN["2.8.2/2.6"][note]
    for place in ("/controller", "/feature"):
        assert ours[place] == KNOWN["2.8.2"][place]
    assert theirs[LOG_DIR_EVENT] == [form_of(LogDirEvent(1).encode())]


def test_the_table_is_as_recorded():
    page = Path(__file__).parents[2] / "docs" / "znodes.md"
    assert page.read_text() == table()
