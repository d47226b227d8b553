"""A producer with acks=0 sends and closes: its records are appended, also those that Python
decompresses."""

import socket
import time

import pytest
from hostile.raw import produce_body

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.wire import compression
from barnabas.wire.batches import encode_batch
from barnabas.wire.headers import encode_request

TIMES = 30
RECORDS = 1000


@pytest.mark.parametrize("codec", compression.CODECS)
def test_what_came_without_acks_is_appended_after_its_peer_closed(codec):
    records = encode_batch(
        [Record(b"v" * 100, timestamp=1)] * RECORDS, codec=compression.CODECS[codec]
    )
    ask = encode_request(0, 8, 1, "goes", produce_body(records, acks=0))
    with Broker() as broker:
        broker.create_topic("t")
        host, port = broker.bootstrap_servers.split(":")
        address = host, int(port)
        for _ in range(TIMES):
            with socket.create_connection(address) as connection:
                connection.sendall(ask)
        give_up = time.monotonic() + 30
        while len(broker.records("t")) < RECORDS * TIMES and time.monotonic() < give_up:
            time.sleep(0.05)
        assert len(broker.records("t")) == RECORDS * TIMES
