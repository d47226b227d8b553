"""A right that is taken away while clients work: nothing that they send afterwards is done."""

import threading
import time

import pytest
from compat.support import Wire
from oracle.produce import batch, produce_frame
from security.ruled_broker import ANONYMOUS, ruled_broker

from barnabas.controller.topics import NewTopic
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.acl_codes import ALLOW, LITERAL, READ, TOPIC, WRITE
from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header

REFUSED = 29
WRITERS, READERS, TURNS = 3, 2, 5
WAIT_S = 30
NAME = "busy"
PATTERN = ResourcePattern(TOPIC, NAME, LITERAL)
ENTRIES = {AccessControlEntry(ANONYMOUS, "*", right, ALLOW) for right in (READ, WRITE)}


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    with ruled_broker(tmp_path_factory.mktemp("busy")) as made:
        made.broker.node.serving.administration.topics.create(NewTopic(NAME, 1, 1), False)
        yield made


def write(wire):
    frame = wire.call_raw(produce_frame([(NAME, 0, batch(1))], 9, framed=True))
    _header, at = decode_response_header(frame, 0, 9)
    return response(0).decode(frame, 9, at).responses[0].partitionResponses[0].errorCode


def read(wire):
    message = request(1)
    part = message.struct("topics.partitions")(partition=0, partitionMaxBytes=1000)
    topic = message.struct("topics")(topic=NAME, partitions=[part])
    body = message.cls(topics=[topic], sessionId=0, sessionEpoch=-1, maxBytes=1000)
    return wire.call(1, 11, body).responses[0].partitions[0].errorCode


class Client(threading.Thread):
    """Asks until it is stopped, and keeps when it sent each request and what it was answered."""

    def __init__(self, address, ask, stopped):
        super().__init__(daemon=True)
        self._address, self._ask, self._stopped = address, ask, stopped
        self.answers = []

    def run(self):
        with Wire(self._address) as wire:
            while not self._stopped.is_set():
                sent_ns = time.monotonic_ns()
                self.answers.append((sent_ns, self._ask(wire)))


def wait_for(clients, code):
    """Until each client has been answered with the code once more."""
    counts = [len(client.answers) for client in clients]
    deadline = time.monotonic() + WAIT_S
    for client, count in zip(clients, counts, strict=True):
        while not any(answer == code for _, answer in client.answers[count:]):
            assert time.monotonic() < deadline and client.is_alive()


def codes_since(clients, since_ns):
    """Waits until each client has an answer to a request that it sent after `since_ns`. Returns,
    for each client, the codes of all such answers."""
    deadline = time.monotonic() + WAIT_S
    for client in clients:
        while client.answers[-1][0] <= since_ns:
            assert time.monotonic() < deadline and client.is_alive()
    return [{code for at_ns, code in list(c.answers) if at_ns > since_ns} for c in clients]


def test_a_right_that_is_taken_under_load(ruled):
    store = ruled.authorizer.store
    stopped = threading.Event()
    asks = [write] * WRITERS + [read] * READERS
    clients = [Client(ruled.address, ask, stopped) for ask in asks]
    for client in clients:
        client.start()
    try:
        for _ in range(TURNS):
            assert store.change({PATTERN: ENTRIES}, {}) == {PATTERN: None}
            wait_for(clients, 0)
            store.change({}, {PATTERN: ENTRIES})
            taken_ns = time.monotonic_ns()
            assert codes_since(clients, taken_ns) == [{REFUSED}] * len(clients)
    finally:
        stopped.set()
        for client in clients:
            client.join(WAIT_S)
