"""Runs one broker in one thread, on a simulated disk, and cuts its power at any call, by a seed.

The clients, the judge and the steps are those of the simulated cluster (base_world.py). The broker
(single_node.py) writes real files; a library that is loaded before libc records each call that
changes them (durability/recorder.c), those of the native code, of Python and of SQLite. The power
is cut after any of these calls, in the middle of a step: the answers of that step reach no client.
The disk then keeps what was flushed, and some of the rest (durability/recording.py). The broker
starts on it, in the middle of which the power may be cut again, and the clients go on: they send
again what was not acknowledged. The judge follows them through all lives of the disk. With
log.durability=os, a power cut may take the unflushed end of each log (losses.py); where the disk
has all calls up to one of them, as after a kill, nothing may be gone.

Run it in a process with the recorder: simulation/run_one_node.py.
"""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from durability.recording import Call, Choice, OwnCalls, SimulatedDisk
from simulation.base_world import RECREATED, TOPIC, BaseWorld, Known, no_surprise
from simulation.classic_members import ClassicMembers
from simulation.failing_directory import FailingDirectory
from simulation.judge import Log, Place
from simulation.keyed import Keyed
from simulation.log_rows import Violation
from simulation.losses import Losses
from simulation.members import Members
from simulation.node import replaced
from simulation.retained import BYTES, Retained
from simulation.retained import SEGMENT_BYTES as SHORT_BYTES
from simulation.single_node import NODE_ID, SingleNode, replacements
from simulation.streams_members import StreamsMembers
from simulation.topic_changes import TopicChanges

from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.tree import MetadataError
from barnabas.metadata.znodes import uuid_bytes
from barnabas.storage.log_dirs import UnusableDirectory

T = TypeVar("T")

DATA = ("data", "data-2", "data-3")  # the log directories, in the folder of the recorder
KEYED, RETAINED, NAMES, PARTITIONS = "keyed", "retained", (RECREATED, "second"), 2
SEGMENT_BYTES, KEYED_BYTES = "4000", "1000"
# What clients do in a step, by its weight; "run": a step of the broker.
DOES = (
    *("produce",) * 6, *("commit",) * 3, *("transact",) * 6, *("share",) * 3, "read",
    *("write keyed",) * 4, *("write retained",) * 3, "delete records",
    *("heartbeat",) * 5, "administer", "stop", *("run",) * 24,
)  # fmt: skip
ENDS = ("produce", "transact", "share", "write keyed", "write retained", "run", "run", "run")
OFTEN = 30  # the weight of what clients do more often in a life
STOPS = 0.1  # the probability of a clean stop, where the broker may stop
# What the disk has of what was not flushed.
CHOICES = ("nothing", "names", "contents", "all", "some", "some", "some")
CALLS_MAX = (10, 60, 60, 200)  # until the power is cut
STEPS_MAX = 80  # the same
CUT_START, START_CALLS = 0.3, 200  # the probability of a cut while the broker starts; its calls
KILLED = 0.5  # the probability that a broker whose flush has failed is killed
CALL_STEPS_MAX = 2000  # in which so many calls are made


class PowerCut(BaseException):
    """Ends a step, and the life of the broker."""


class Children:
    """The child processes in which the power was cut."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._running: dict[int, tuple[int, str]] = {}  # by process id: its pipe, and the call
        self.count, self.say = 0, -1

    def cut(self, where: str) -> None:
        """Goes on in a child, in which it raises PowerCut, and in this process. Raises Violation
        when an earlier child has found one."""
        while len(self._running) >= self._processes:
            self._take()
        heard, self.say = os.pipe()
        pid = os.fork()
        if not pid:
            raise PowerCut
        os.close(self.say)
        self.count += 1
        self._running[pid] = heard, where

    def _take(self) -> None:
        pid, status = os.wait()
        heard, where = self._running.pop(pid)
        with open(heard, "rb") as file:
            said = file.read().decode()
        if status:
            self.end()
            raise Violation(f"power cut {where}: {said}")

    def end(self) -> None:
        """Waits for all children."""
        while self._running:
            self._take()


class OneNodeWorld(BaseWorld):
    """A simulated broker. `folder` is that of the recorder, and empty. `bugs` are planted in the
    disk: a call of which one of them returns True does nothing. Raises Violation."""

    may_have_gaps = True
    node: SingleNode

    def __init__(
        self,
        seed: int,
        folder: Path,
        bugs: Sequence[Callable[[Call], bool]] = (),
        durability: str = "fsync",
        directories: int = 1,
    ) -> None:
        super().__init__(seed, durability, has_share_group=True)
        self.folder, self.calls, self._bugs = folder, OwnCalls(), bugs
        self.calls.limit(0)
        self._directories = DATA[:directories]
        self.node = self._node_in(folder)
        self.failing = FailingDirectory(self)
        self.brokers = {NODE_ID: self.node}
        self.running = self.node
        self.administrator = TopicChanges(self, NAMES)
        self.keyed, self.retained = Keyed(self, KEYED), Retained(self, RETAINED)
        self.groups = (
            Members(self, TOPIC), ClassicMembers(self), StreamsMembers(self, TOPIC),
        )  # fmt: skip
        self.losses = Losses(self, KEYED) if durability == "os" else None
        self._does: Sequence[str] = DOES
        self._group: Any = None  # the group whose members send, None: any
        self._may_lose = False  # the power was cut, and the broker has not started again
        self.disk = SimulatedDisk(folder)
        self._may_cut = False  # the power is cut when the disk has taken its last call
        self._forks = False  # the power is cut after each call, in a child of this process
        self._cut_step = 0  # the calls until the last step that was cut off behind its end
        self._partitions: dict[Place, Known] = {}
        self._partitions_of: ClusterState | None = None

    # -- the run

    def run(self, lives: int) -> None:
        """Cuts the power `lives` times, each time after a random number of calls, and checks what
        is there at the end."""
        with self._opened():
            for life in range(lives):
                self._live()
                self._cut_power(is_last=life == lives - 1)
            self.calls.limit(0)
            self._settle()

    def run_with_every_cut(self, steps: int, processes: int) -> int:
        """Runs some steps, and cuts the power after every call of them: each time in a child of
        this process, which starts the broker on what the disk then has, lets the clients go on, and
        checks everything. Returns the number of cuts."""
        with self._opened():
            self.calls.limit(-1)
            self._children = Children(processes)
            self._forks = True
            for _ in range(steps):
                try:
                    self.step()
                except PowerCut:
                    self.end_as_child(self._children.say)
            self._forks = False
            self.calls.limit(0)
            self._children.end()
            self._settle()
        return self._children.count

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Starts the broker, creates the topics, and kills the broker at the end."""
        with replaced(replacements(self)), no_surprise():
            try:
                self.start(self.node)
                self._begin()
                self._disk_of_files()
                self.calls.take()
                yield
            finally:
                self.calls.limit(0)
                if self.node.is_running:
                    self.node.kill()

    def _begin(self) -> None:
        node, create = self.node, self.administrator.create
        create(TOPIC, PARTITIONS, {"segment.bytes": SEGMENT_BYTES})
        settings = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
        create(KEYED, 1, settings | {"segment.bytes": KEYED_BYTES})
        create(RETAINED, 1, {"segment.bytes": str(SHORT_BYTES), "retention.bytes": str(BYTES)})
        for journal in (
            node.group_log, node.coordinators.transaction_log, node.coordinators.share_log
        ):  # fmt: skip
            self.attempt(node, journal.ensure)
        self.until(lambda: self.is_whole, "the topics are not served")
        assert self.sharers is not None
        self.sharers.begin(node)

    def _live(self) -> None:
        """Runs steps until the power is cut: after a number of calls, in the middle of a step, or
        after a number of steps, when clients may have answers. In half of the lives, clients do one
        thing more often than others."""
        often = self.choice(sorted({*ENDS, "heartbeat", "commit"} - {"run"}))
        self._does = DOES + (often,) * OFTEN if self.happens(0.5) else DOES
        self._group = self.choice(self.groups) if often == "heartbeat" else None
        if self.happens(0.5):
            self.calls.limit(-1)
            self.failing.plan()
            for _ in range(1 + self.below(STEPS_MAX)):
                self.step()
            self.failing.check_others()
            return
        self._plan_cut(self.choice(CALLS_MAX))
        self.failing.plan()
        try:
            for _ in range(CALL_STEPS_MAX):
                self.step()
        except PowerCut:
            pass

    def _settle(self) -> None:
        """Waits until all work is done, and checks everything."""
        sharers = self.sharers
        assert sharers is not None
        self.until(lambda: self.is_whole, "the work is not done")
        self.until(lambda: sharers.has_all and self.is_whole, "records are not shared")
        self._check_kept()
        self.reader.read_all()
        self.judge.check_end(self._hanging())

    def _check_kept(self) -> None:
        """Checks what the broker must have whenever it runs."""
        self.judge.look(self.brokers.values())  # what is committed, before a reader gets it
        self.administrator.check(self.node.reader.state)
        self.judge.check_acknowledged()
        for topic in (self.keyed, self.retained):
            if not self.may_be_offline((topic.topic, 0)):
                topic.check(self.node.replicas.log(topic.topic, 0))
        self.judge.check_files()

    @property
    def is_whole(self) -> bool:
        """Returns whether all work is done."""
        node = self.node
        if not (
            node.is_running
            and self.producers.is_idle
            and self.transactions.is_idle
            and self.keyed.is_idle
            and self.retained.is_idle
        ):
            return False
        for name, index in self.partitions():
            handle = node.table.partition(name, index)
            if handle is None or handle.log is None:
                return False
            end, log = handle.log.end_offset, (handle.topic_id, handle.index)
            if end != handle.high_watermark:
                return False
            judge = self.judge.transactions
            if not judge.ends_in(log):
                return False
            if end != handle.last_stable_offset and not judge.is_hanging_in(log):
                return False
        made = node.coordinators
        return all(
            all(journal.led_partitions().values())
            for journal in (made.group_log, made.transaction_log, made.share_log)
        )

    def _described(self) -> str:
        clients = {
            "producers": self.producers,
            "transactions": self.transactions,
            self.keyed.topic: self.keyed,
            self.retained.topic: self.retained,
        }
        busy = [name for name, row in clients.items() if not row.is_idle]
        return f"busy: {busy}; {super()._described()}"

    def _hanging(self) -> dict[Log, int]:
        """Returns the last stable offsets of logs with transactions that a power cut has left open
        for good: their coordinator has forgotten them, or has lost nothing. An administrator ends
        them (`barnabas transactions find-hanging`)."""
        judge, places = self.judge.transactions, self.partitions()
        return {
            row.log: self.node.table.partition(*place).last_stable_offset
            for place, row in places.items()
            if judge.is_hanging_in(row.log)
        }

    # -- steps

    def step(self, produces: bool = True) -> None:
        self._pass_time(self.choice((0, 0, 0, 1, 5, 20)) * 1_000_000)
        kinds = self._does if produces else ENDS
        kind = self.choice(kinds)
        if kind == "produce" and produces:
            self.producers.send(may_begin=True)
        elif kind == "produce":
            self.producers.send_again(self.node)
        elif kind == "commit":
            self.committers.send()
        elif kind == "transact":
            self.transactions.send(may_begin=produces)
        elif kind == "share":
            assert self.sharers is not None
            self.sharers.send(may_die=produces)
        elif kind == "read":
            self.reader.act()
        elif kind == "write keyed":
            self.keyed.send(may_begin=produces)
        elif kind == "write retained":
            self.retained.send(may_begin=produces)
        elif kind == "delete records":
            self.retained.delete()
        elif kind == "heartbeat":
            (self._group or self.choice(self.groups)).send(may_leave=produces)
        elif kind == "administer" and self.happens(0.3):
            self.administrator.act()
        elif kind == "stop" and self.happens(STOPS):
            self._restart()
        elif not self._run_one():
            self._pass_time_to_next()
        self.poll()
        self.judge.look(self.touched)
        self.touched.clear()
        self.retained.look()
        if self.losses is not None:
            self.losses.look()
        if self.failing.path is not None:
            self._take_calls()
        if len(self.node.folders) > 1:
            self.failing.look()
        if self._forks and self._cut_step != self.counts["calls"]:
            self._cut_step = self.counts["calls"]
            self._children.cut(f"behind the step of call {self._cut_step}")

    def poll(self) -> None:
        """Lets the clients take answers."""
        assert self.sharers is not None
        for clients in (
            self.producers, self.committers, self.transactions, self.sharers, *self.groups,
            self.keyed, self.retained,
        ):  # fmt: skip
            clients.poll()

    def _restart(self) -> None:
        """Stops the broker as an operator does, and starts it again."""
        node = self.node
        if any(row.worker is not None for row in node.actors):
            return
        self.note("stopped")
        self._before_end()
        node.stop()
        self.look_at_disk()
        self._take_calls()
        self._note_lost_flushes()  # those of the stop
        with self.calls.paused():
            self.disk.write_evicted()
        self.failing.before_start(may_stay=self.losses is None)
        self.start(node)
        self.look_at_disk()
        self._check_start()

    def lost(self, broker: Any) -> None:
        super().lost(broker)
        for group in self.groups:
            group.lost(broker)
        self.keyed.lost(broker)
        self.retained.lost(broker)

    # -- time, network, metadata

    def partitions(self) -> dict[Place, Known]:
        if self.node.is_running and self._partitions_of is not self.node.reader.state:
            self._partitions_of = state = self.node.reader.state
            self._partitions = {
                (name, index): Known(
                    (uuid_bytes(topic.topic_id), index),
                    row.replicas,
                    row.replicas,
                    False,
                    row.state,
                    row.state_zxid,
                )
                for name, topic in sorted(state.topics.items())
                for index, row in topic.partitions.items()
            }
            self.logs = frozenset(row.log for row in self._partitions.values())
        return self._partitions

    def loses(self, key: int, target: Any, frame: bytes | None) -> bool:
        return False

    def loses_answer(self, key: int, target: Any) -> bool:
        """Answers do not get lost; but none comes from a broker whose power was cut before."""
        self.look_at_disk()
        return False

    def attempt(self, broker: Any, call: Callable[[], T]) -> T | None:
        found = super().attempt(broker, call)
        self.look_at_disk()
        return found

    def handled(self, *given: Any) -> Any:
        found = super().handled(*given)
        self.look_at_disk()
        return found

    def _run_actor(self, broker: Any, actor: Any) -> None:
        super()._run_actor(broker, actor)
        self.look_at_disk()

    def end_of(self, topic: str, partition: int) -> int:
        handle = self.node.table.partition(topic, partition)
        return handle.log.end_offset if handle is not None and handle.log is not None else 0

    # -- the disk

    def look_at_disk(self) -> None:
        """Raises PowerCut when the disk has taken its last call."""
        if self._may_cut:
            if self.calls.is_over:
                raise PowerCut
        elif self._forks:
            for call in self.calls.take():
                self._apply(call)
                self.counts["calls"] += 1
                self._children.cut(f"after call {self.counts['calls']} ({call.name} {call.path})")

    def _apply(self, call: Call) -> None:
        if not any(bug(call) for bug in self._bugs):
            self.disk.apply(call)

    def _plan_cut(self, calls_max: int) -> None:
        self._may_cut = True
        self.calls.limit(1 + self.below(calls_max))

    def _cut_power(self, is_last: bool) -> None:
        """Starts the broker on what the disk has after the power was cut. The power may be cut
        again while it starts."""
        while True:
            self._may_cut = False
            self._take_calls()
            self.calls.limit(0)
            if self.node.is_running:
                self._before_end()
                self.node.kill()
            image = self.folder.with_name("image")
            was_killed = self._write_image(image)
            shutil.rmtree(self.folder)
            image.rename(self.folder)
            if not was_killed:
                self._disk_of_files()
            self.failing.before_start(may_stay=self.losses is None and not is_last)
            try:
                if self.happens(CUT_START):
                    self._plan_cut(START_CALLS)
                else:
                    self.calls.limit(-1)
                self._start_again()
                self._may_cut = False
                return
            except PowerCut:
                self.counts["power cuts while it starts"] += 1

    def _take_calls(self) -> None:
        calls = self.calls.take()
        for call in calls:
            self._apply(call)
        self.counts["calls"] += sum(call.name != "failed" for call in calls)
        self.failing.take(calls)

    def _disk_of_files(self) -> None:
        self.disk = SimulatedDisk.of_files(self.folder)
        self.disk.of_failed = Choice(chance=self._random)

    def _before_end(self) -> None:
        """Notes what the broker has before it is killed or stops."""
        self.retained.look(is_whole=not self._may_lose)
        if self.losses is not None:
            self.losses.before()
        self._note_lost_flushes()

    def _note_lost_flushes(self) -> None:
        self._may_lose |= self.disk.lost_flushes > 0
        self.disk.lost_flushes = 0

    def _write_image(self, image: Path) -> bool:
        """Writes what the disk has when the power is cut now, or what processes see when the broker
        is killed. Returns whether it was killed."""
        kind = self.choice(CHOICES)
        if self.failing.has_lost and self.happens(KILLED):
            kind = "all"
        self.note("power cuts", f"after {self.counts['calls']} calls, the disk has {kind}")
        if kind == "all" and len(self._directories) > 1:
            self.disk.write_now(image)
            return True
        self._may_lose |= kind != "all"  # else it is as after a kill
        choice = {
            "nothing": Choice(),
            "names": Choice(names=1),
            "contents": Choice(data=1),
            "all": Choice(names=1, data=1),
            "some": Choice(chance=self._random),
        }[kind]
        self.disk.write_image(image, choice)
        return False

    def _start_again(self) -> None:
        """Starts the broker after a power cut, and checks what it has."""
        try:
            self.start(self.node)
        except (MetadataError, UnusableDirectory, OSError) as error:
            raise Violation(f"the broker does not start: {error}") from error
        self.look_at_disk()
        self.note("started")
        self._check_start()

    def _check_start(self) -> None:
        """Checks what the broker has when it has started."""
        if self.losses is not None and self._may_lose:
            self.losses.check()
        if self.losses is not None:
            self.losses.look()
        self._may_lose = False
        self._check_kept()

    def end_as_child(self, say: int) -> NoReturn:
        """Goes on in a child process after a power cut, and writes to `say` what was wrong. The
        broker of the parent stays as it is: its files are the parent's, too."""
        self._forks, former, status = False, self.node, 1
        try:
            self.calls.limit(0)
            self.retained.look()
            if self.losses is not None:
                self.losses.before()
            self.lost(former)
            folder = self.folder.with_name(f"child-{os.getpid()}")
            self._write_image(folder)
            self.node = self._node_in(folder)
            self.node.life = former.life
            self.brokers = {NODE_ID: self.node}
            self._start_again()
            self._settle()
            shutil.rmtree(folder)
            status = 0
        except BaseException as error:
            text = "".join(traceback.format_exception(error))[-3000:]
            os.write(say, f"{error}\n{text}".encode())
        os._exit(status)

    def _node_in(self, folder: Path) -> SingleNode:
        return SingleNode(self, NODE_ID, [folder / name for name in self._directories])

    def may_be_offline(self, place: Place) -> bool:
        return self.failing.may_be_offline(place)

    def start(self, broker: Any) -> None:
        broker.start()
