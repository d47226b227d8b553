"""Members of the classic protocol as frames."""

import select
import time
from contextlib import contextmanager

from compat.support import Wire

from barnabas import Broker
from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header, encode_request

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
GROUP = "g"
WAIT_S = 20
# A request without a response for this long counts as waiting.
QUIET_S = 0.15


@contextmanager
def started(path, settings=(), *, group=GROUP):
    base = {"log.dirs": str(path), "group.initial.rebalance.delay.ms": "0"}
    with Broker({**base, **dict(settings)}) as broker:
        with Talker(broker) as first:
            assert first.ask(10, 0, request(10).cls(key=group)).errorCode == 0
        yield broker


def group_of(broker, name=GROUP):
    return broker.node.serving.coordinators.groups.groups[name]


def join_body(member="", *, group=GROUP, instance=None, protocols=(("range", b"m"),), **more):
    ask = request(JOIN)
    given = {"sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 20_000, "protocolType": "consumer"}
    return ask.cls(
        groupId=group,
        memberId=member,
        groupInstanceId=instance,
        protocols=[ask.struct("protocols")(name=name, metadata=data) for name, data in protocols],
        **{**given, **more},
    )


def sync_body(member, generation, given=(), *, group=GROUP, **more):
    """`given`: (member, assignment) of each member, from the leader."""
    ask = request(SYNC)
    named = {"protocolType": "consumer", "protocolName": "range"}
    return ask.cls(
        groupId=group,
        generationId=generation,
        memberId=member,
        assignments=[
            ask.struct("assignments")(memberId=name, assignment=data) for name, data in given
        ],
        **{**named, **more},
    )


def heartbeat_body(member, generation, *, group=GROUP, instance=None):
    return request(HEARTBEAT).cls(
        groupId=group, generationId=generation, memberId=member, groupInstanceId=instance
    )


class Talker:
    """A connection whose responses can be read later."""

    def __init__(self, broker, client="talker"):
        self.wire = Wire(broker.bootstrap_servers)
        self._client = client
        self._asked = None

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self):
        self.wire.close()

    def send(self, key, version, body):
        assert self._asked is None, "one question at a time"
        self._asked = key, version
        self.wire._socket.sendall(encode_request(key, version, 7, self._client, body))

    @property
    def is_asking(self):
        return self._asked is not None

    def waits(self, quiet_s=QUIET_S):
        return not select.select([self.wire._socket], [], [], quiet_s)[0]

    def answer(self):
        (key, version), self._asked = self._asked, None
        frame = self.wire._frame()
        _, offset = decode_response_header(frame, key, version)
        return response(key).decode(frame, version, offset)

    def ask(self, key, version, body):
        self.send(key, version, body)
        return self.answer()

    def raw(self, key, version, body):
        """The answer's bytes."""
        return self.wire.call_raw(encode_request(key, version, 7, self._client, body))


class Member(Talker):
    """One member; `settle` brings a group of them into a generation."""

    def __init__(self, broker, instance=None, version=5):
        super().__init__(broker)
        self.instance, self.version = instance, version
        self.id, self.generation, self.leads = "", -1, False
        self.told = []  # of the generation, to its leader

    def join(self):
        self.send(JOIN, self.version, join_body(self.id, instance=self.instance))

    def joined(self):
        told = self.answer()
        self.id = told.memberId
        if told.errorCode == 79:
            self.join()
            return self.joined()
        assert told.errorCode == 0, told
        self.generation, self.leads = told.generationId, told.leader == told.memberId
        self.told = [row.memberId for row in told.members]
        return told

    def sync(self, given=()):
        self.send(SYNC, 5, self.sync_body(given))

    def sync_body(self, given=()):
        return sync_body(self.id, self.generation, given, groupInstanceId=self.instance)

    def synced(self):
        told = self.answer()
        return told.errorCode, bytes(told.assignment)

    def heartbeat(self):
        body = heartbeat_body(self.id, self.generation, instance=self.instance)
        return self.ask(HEARTBEAT, 4, body).errorCode


def settle(*members):
    """Brings all into one generation, each with its id as its assignment. Returns the leader."""
    joined_together(*members)
    leader = next(member for member in members if member.leads)
    for member in members:
        if member is not leader:
            member.sync()
    leader.sync([(name, name.encode()) for name in leader.told])
    for member in members:
        assert member.synced() == (0, member.id.encode())
    return leader


def joined_together(*members):
    """Brings all into one generation without SyncGroup. Some may be in the group already."""
    deadline = time.monotonic() + WAIT_S
    for member in members:
        if not member.id and member.instance is None and member.version >= 4:
            member.id = member.ask(JOIN, member.version, join_body()).memberId
    for member in members:
        member.join()
    while True:
        assert time.monotonic() < deadline, [member.generation for member in members]
        for member in members:
            if member.is_asking and not member.waits(0.01):
                member.joined()
        idle = [member for member in members if not member.is_asking]
        if len(idle) == len(members) and len({member.generation for member in members}) == 1:
            return
        for member in idle:
            member.join()
