"""Faults on demand: errors, delays and dropped connections that a test asks for.

The broker compares every request that reaches Python with the rules. Requests that native handlers
answer reach Python only while a rule names their API: the reactor then bypasses the native handler,
so that a broker without rules behaves as always. The responses are valid ones of the protocol
(error_answers.py). A rule applies `times` times and then ends.

A Fetch of an incremental session names only what changed, so its response could not give an error
for each partition. The broker answers that the session is unknown, and the full Fetch that every
client then sends gets the error. The first response does not count."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from barnabas.api.table import api_table
from barnabas.errors import ERRORS, FetchSessionIdNotFound, KafkaError
from barnabas.testing.error_answers import WHOLE_REQUEST, NoPlace, error_answer
from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_response

if TYPE_CHECKING:
    from barnabas.cext.memory.sys import Call, SystemCalls
    from barnabas.cext.network.reactor import Reactor
    from barnabas.cext.network.request_queue import PendingRequest
    from barnabas.server.request_handlers import RequestHandlers

PRODUCE, FETCH, METADATA = 0, 1, 3
ALWAYS = 2**62  # the number of times of a rule that applies until it is cleared
Drop = Literal["before", "after"] | None


class Fault:
    """One rule. Used as a context manager, it ends with the block."""

    def __init__(
        self,
        faults: Faults,
        key: int,
        code: int,
        delay_ms: float,
        drop: Drop,
        times: int,
        topic: str | None,
        client_id: str | None,
    ) -> None:
        self._faults = faults
        self.key = key
        self.code = code  # 0: no error
        self.delay_ms = delay_ms
        self.drop = drop
        self.topic = topic
        self.client_id = client_id
        self.left = times
        self.fired = 0  # how often the rule has applied

    def wait(self, timeout_s: float = 10.0) -> None:
        """Waits until the fault has applied `times` times. Raises TimeoutError."""
        self._faults.wait(self, timeout_s)

    def clear(self) -> None:
        """Removes the rule."""
        self._faults.remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.clear()


class Faults:
    """The rules of one broker, and the code that applies them."""

    def __init__(self, topic_of_id: Callable[[bytes], str | None]) -> None:
        self._topic_of_id = topic_of_id
        self._struck = threading.Condition()  # guards the rules and their counts
        self._rules: list[Fault] = []
        self._reactor: Reactor | None = None
        self._handlers: RequestHandlers | None = None
        self._delays: _Delays | None = None
        table = api_table()
        self._keys = {row.name.lower(): row.key for row in table.values()}
        self._native_keys = {row.key for row in table.values() if row.handle is None}

    # -- the test's side ------------------------------------------------------------------------

    def lay(
        self,
        api: str | int,
        error: str | int | type[KafkaError] | None,
        *,
        delay_ms: float,
        drop: Drop,
        times: int | None,
        topic: str | None,
        client_id: str | None,
    ) -> Fault:
        """Adds a rule for the requests of an API and returns it; `Broker.fail`, `delay` and `drop`
        describe the arguments. Raises ValueError for an unknown API or error, or a negative
        number."""
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; it must be 1 or greater, or None")
        if delay_ms < 0:
            raise ValueError(f"delay_ms is {delay_ms}; it must be 0 or greater")
        code = 0 if error is None else code_of(error)
        rule = Fault(
            self,
            self._key_of(api),
            code,
            delay_ms,
            drop,
            ALWAYS if times is None else times,
            topic,
            client_id,
        )
        with self._struck:
            self._rules.append(rule)
            self._set_gate()
        return rule

    def remove(self, rule: Fault | None = None) -> None:
        """Removes one rule, or all (None). Threads in `wait` of a removed rule go on waiting until
        their timeout."""
        with self._struck:
            self._rules = [row for row in self._rules if rule is not None and row is not rule]
            self._set_gate()
            self._struck.notify_all()

    def wait(self, rule: Fault, timeout_s: float) -> None:
        """Waits until the rule has no uses left. Raises TimeoutError after `timeout_s` seconds."""
        with self._struck:
            if not self._struck.wait_for(lambda: rule.left == 0, timeout_s):
                raise TimeoutError(
                    f"the fault applied {rule.fired} times within {timeout_s} s;"
                    f" {rule.left} more were expected"
                )

    def _key_of(self, api: str | int) -> int:
        if isinstance(api, int) and api in self._keys.values():
            return api
        found = self._keys.get(str(api).lower())
        if found is None:
            raise ValueError(
                f"the broker serves no API {api!r}; it serves {', '.join(sorted(self._keys))}"
            )
        return found

    # -- the broker's side ----------------------------------------------------------------------

    def attach(self, reactor: Reactor, handlers: RequestHandlers) -> None:
        """Applies the rules from now on. The broker's handle calls it when the broker serves
        clients."""
        with self._struck:
            self._reactor, self._handlers = reactor, handlers
            self._set_gate()

    def detach(self) -> None:
        """Drops the delayed requests, which closes their connections. The broker's handle calls it
        when the broker stops."""
        with self._struck:
            self._reactor = None
            delays, self._delays = self._delays, None
        if delays is not None:
            delays.stop()

    def release(self) -> None:
        """Drops the request handlers. The broker's handle calls it when the broker has stopped."""
        self._handlers = None

    def _set_gate(self) -> None:
        if self._reactor is not None:
            self._reactor.set_gate({rule.key for rule in self._rules})

    def _is_native(self, pending: PendingRequest) -> bool:
        """Returns whether the reactor sent a request here that a native handler serves without
        rules."""
        return pending.gated and pending.api_key in self._native_keys

    def gate(self, pending: PendingRequest) -> bool:
        """Applies the first rule that fits the request; returns True when the request needs no
        handler any more. Runs on request handlers."""
        for rule in list(self._rules):
            if rule.key == pending.api_key and self._strike(rule, pending):
                return True
        if self._is_native(pending):
            pending.proceed()
            return True
        return False

    def _strike(self, rule: Fault, pending: PendingRequest) -> bool:
        if rule.client_id is not None and rule.client_id != pending.client_id:
            return False
        frame: bytes | None = None
        if rule.topic is not None or rule.code:
            asked = request(pending.api_key).decode(
                pending.data, pending.api_version, pending.body_at
            )
            if rule.topic is not None and not self._names(asked, rule.topic):
                return False
            if rule.code and pending.api_key == FETCH and _is_incremental(asked, rule.code):
                pending.reply(_session_unknown(pending))
                return True
            if rule.code and rule.drop is None:
                try:
                    frame = self._error_frame(rule, pending, asked)
                except NoPlace:
                    return False
        if not self._take(rule):
            return False
        if rule.delay_ms:
            self._later(rule.delay_ms, lambda: self._finish(rule, pending, frame))
        else:
            self._finish(rule, pending, frame)
        return True

    def _names(self, asked: Struct, topic: str) -> bool:
        """Returns whether a request names the topic, by name or by id."""
        for field in ("topics", "topicData", "topicNames"):
            for row in getattr(asked, field, None) or ():
                if isinstance(row, str):
                    name: str | None = row
                else:
                    name = getattr(row, "name", None) or getattr(row, "topic", None)
                    topic_id = getattr(row, "topicId", None)
                    if not name and topic_id is not None:
                        name = self._topic_of_id(topic_id)
                if name == topic:
                    return True
        return False

    def _error_frame(self, rule: Fault, pending: PendingRequest, asked: Struct) -> bytes | None:
        """Returns the response; None for acks=0, where the protocol has no response and the
        connection closes."""
        key, version = pending.api_key, pending.api_version
        if key == PRODUCE and asked.acks == 0:
            return None
        if key == METADATA:
            return self._metadata_frame(rule, pending)
        body = error_answer(key, version, asked, rule.code)
        return encode_response(key, version, pending.correlation_id, body)

    def _metadata_frame(self, rule: Fault, pending: PendingRequest) -> bytes:
        """Returns the real Metadata response, which names the brokers, with the error in it."""
        handlers = self._handlers
        frame = handlers.carry_out(pending) if handlers is not None else None
        version = pending.api_version
        if not frame:
            raise NoPlace("no Metadata answer")
        _, at = decode_response_header(frame[4:], METADATA, version)
        body = response(METADATA).decode(frame[4:], version, at)
        if ERRORS[rule.code].name in WHOLE_REQUEST and version >= 13:
            body.errorCode, body.topics = rule.code, []
        elif not body.topics:
            raise NoPlace("this Metadata response names no topic")
        for row in body.topics:
            row.errorCode, row.partitions = rule.code, []
        return encode_response(METADATA, version, pending.correlation_id, body)

    def _take(self, rule: Fault) -> bool:
        """Counts one use of the rule and removes a used-up rule; False when none was left."""
        with self._struck:
            if rule not in self._rules:
                return False
            rule.fired += 1
            rule.left -= 1
            if rule.left == 0:
                self._rules = [row for row in self._rules if row is not rule]
                self._set_gate()
            self._struck.notify_all()
            return True

    def _finish(self, rule: Fault, pending: PendingRequest, frame: bytes | None) -> None:
        handlers = self._handlers
        if rule.drop == "after":
            pending.muffle()
        if frame is not None:
            pending.reply(frame)
        elif rule.drop == "before" or rule.code or handlers is None:
            pending.close()
        elif self._is_native(pending):
            pending.proceed()
        else:
            handlers.answer(pending)

    def _later(self, delay_ms: float, finish: Callable[[], None]) -> None:
        with self._struck:
            if self._reactor is None:
                return  # the broker stops; dropping the request closes its connection
            if self._delays is None:
                self._delays = _Delays()
            self._delays.add(delay_ms, finish)


class _Delays:
    """One thread for all delayed requests. Their number is at most that of the connections, because
    a connection has one request in progress at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="delayed-requests", daemon=True)
        self._thread.start()

    def add(self, delay_ms: float, finish: Callable[[], None]) -> None:
        """Queues `finish` to run after `delay_ms` of the machine's time: clients wait by that time
        and not by the broker's clock."""
        with self._changed:
            row = (time.monotonic() + delay_ms / 1000, next(self._numbers), finish)
            heapq.heappush(self._due, row)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._due.clear()
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not (
                    self._due and self._due[0][0] <= time.monotonic()
                ):
                    left_s = self._due[0][0] - time.monotonic() if self._due else None
                    self._changed.wait(left_s)
                if self._stopping:
                    return
                finish = heapq.heappop(self._due)[2]
            finish()
            del finish  # it refers to the request


class DiskFault:
    """One system call that fails. Used as a context manager, the fault ends with the block."""

    def __init__(self, faults: DiskFaults, call: Call, errno: int, times: int) -> None:
        self._faults = faults
        self.call = call
        self.errno = errno
        self.times = times
        self.number = -1  # index of the rule in the system-call table, while it is there
        self.fired_before = 0

    @property
    def fired(self) -> int:
        """How often the call has failed."""
        return self._faults.fired(self)

    def clear(self) -> None:
        """Removes the fault."""
        self._faults.clear(self)

    def __enter__(self) -> DiskFault:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.clear()


class DiskFaults:
    """The failing calls of one broker's system-call table, which can only drop all its rules."""

    def __init__(self, system: SystemCalls) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._laid: list[DiskFault] = []

    def lay(self, call: Call, errno: int, times: int | None) -> DiskFault:
        """Makes a system call on the logs fail with `errno` (the number), `times` times; None:
        until it is cleared. Returns the fault."""
        fault = DiskFault(self, call, errno, ALWAYS if times is None else times)
        with self._lock:
            self._lay(fault)
        return fault

    def _lay(self, fault: DiskFault) -> None:
        left = fault.times - fault.fired_before
        if left > 0:
            fault.number = self._system.fault(fault.call, "error", errno=fault.errno, count=left)
            self._laid.append(fault)

    def fired(self, fault: DiskFault) -> int:
        """Returns how often the fault has made the call fail."""
        with self._lock:
            return self._fired(fault)

    def _fired(self, fault: DiskFault) -> int:
        now = self._system.fired(fault.number) if fault.number >= 0 else 0
        return fault.fired_before + now

    def clear(self, fault: DiskFault | None = None) -> None:
        """Removes one fault, or all (None). The other faults keep their counts."""
        with self._lock:
            laid, self._laid = self._laid, []
            for row in laid:
                row.fired_before, row.number = self._fired(row), -1
            if laid:
                self._system.clear_faults()
            for row in laid:
                if fault is not None and row is not fault:
                    self._lay(row)


def code_of(error: str | int | type[KafkaError]) -> int:
    """Returns the code of an error, given by its name in Kafka, its number or its class. Raises
    ValueError."""
    if isinstance(error, type):
        return error.code
    if isinstance(error, int) and error in ERRORS:
        return error
    for code, known in ERRORS.items():
        if known.name == error:
            return code
    raise ValueError(f"Kafka has no error {error!r}; give a name such as NOT_LEADER_OR_FOLLOWER")


def _is_incremental(asked: Struct, code: int) -> bool:
    return asked.sessionEpoch > 0 and ERRORS[code].name not in WHOLE_REQUEST


def _session_unknown(pending: PendingRequest) -> bytes:
    body = response(FETCH).cls(errorCode=FetchSessionIdNotFound.code)
    return encode_response(FETCH, pending.api_version, pending.correlation_id, body)
