"""A forked child does not have its parent's broker, does not disturb it, and may start its own."""

import faulthandler
import gc
import multiprocessing
import os
import socket
import subprocess
import sys
import traceback

import pytest
from confluent_kafka import Producer
from testing.processes import address, answers, descriptors, scratch_directories

from barnabas import Broker
from barnabas.testing.broker import BrokerNotRunning

HANG_S = 20  # after that, a child prints its stack
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    pytest.mark.alone(
        reason="compares the scratch directories of the whole machine before and after a broker"
    ),
]


def in_a_child(work):
    """Runs work() in a forked child, which must succeed within a time."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        faulthandler.dump_traceback_later(HANG_S, exit=True, file=write)
        try:
            work()
            code = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode())
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        text = said.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, text


def produce(broker, topic, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def test_the_parents_broker_says_in_the_child_that_it_is_not_there():
    with Broker() as broker:
        where = address(broker)

        def work():
            for use in (
                lambda: broker.bootstrap_servers,
                lambda: broker.records("t"),
                lambda: broker.fail("Fetch", "UNKNOWN_SERVER_ERROR"),
                lambda: broker.clock,
                lambda: broker.node,
                broker.start,
                broker.restart,
                broker.clear_faults,
            ):
                with pytest.raises(
                    BrokerNotRunning, match=r"connect to the parent's broker, or start"
                ):
                    use()
            broker.stop()
            assert answers(where)  # as a client, over TCP

        in_a_child(work)
        assert answers(where)


def test_a_child_that_leaves_the_block_or_forgets_the_broker_harms_nothing():
    with Broker(durable=True) as broker:
        broker.create_topic("t")
        produce(broker, "t", b"before")
        holder = [broker]

        def work():
            with broker_of(holder):
                pass
            holder.clear()
            gc.collect()

        in_a_child(work)
        produce(broker, "t", b"after")
        broker.restart()
        broker.assert_records("t", ["before", "after"])
        assert broker.directory.exists()


def broker_of(holder):
    class Block:
        def __enter__(self):
            return holder[0]

        def __exit__(self, *raised):
            holder[0].__exit__(*raised)

    return Block()


def test_a_child_keeps_no_port_file_or_lock_of_its_parent(tmp_path):
    broker = Broker({"log.dirs": tmp_path}).start()
    broker.create_topic("t")
    produce(broker, "t", b"v")
    where = address(broker)
    go_read, go_write = os.pipe()
    with socket.create_connection(where) as client:
        assert answers(where)
        child = os.fork()
        if child == 0:
            names = {name for _, name in descriptors()}
            bad = [name for name in names if name.startswith(str(tmp_path))]
            os.read(go_read, 1)
            os._exit(3 if bad else 0)
        broker.stop()
        assert client.recv(1) == b""  # the child does not keep the connection open
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(where, timeout=5)
        with Broker({"log.dirs": tmp_path}) as again:  # nor the locks
            again.assert_records("t", ["v"])
    os.write(go_write, b"x")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_child_starts_its_own_broker():
    with Broker() as broker:
        broker.create_topic("t")
        produce(broker, "t", b"parent's")
        where = address(broker)

        def work():
            with Broker() as own:
                assert address(own) != where
                own.create_topic("t")
                with socket.create_connection(address(own)):
                    assert answers(address(own))
                assert own.records("t") == []
                assert own.topics == ["t"]

        in_a_child(work)
        broker.assert_records("t", ["parent's"])


def test_forks_in_the_midst_of_starts_and_traffic_never_hang():
    for number in range(10):
        with Broker() as broker:
            assert answers(address(broker))

            def work():
                with Broker() as own:
                    assert answers(address(own))

            in_a_child(work)
            broker.create_topic(f"t{number}")


def _child_of_multiprocessing(where, said):
    with Broker() as own:
        said.put((answers(where), answers(address(own))))


def test_multiprocessing_by_fork():
    before = scratch_directories()
    with Broker() as broker:
        context = multiprocessing.get_context("fork")
        said = context.Queue()
        child = context.Process(target=_child_of_multiprocessing, args=(address(broker), said))
        child.start()
        assert said.get(timeout=30) == (True, True)
        child.join(30)
        assert child.exitcode == 0
    assert not scratch_directories() - before


def test_a_program_that_is_started_inherits_nothing():
    with Broker() as broker:
        broker.create_topic("t")
        produce(broker, "t", b"v")
        with socket.create_connection(address(broker)):
            assert answers(address(broker))
            code = "import os; print(len(os.listdir('/proc/self/fd')))"
            command = [sys.executable, "-c", code]
            alone = subprocess.run(command, capture_output=True, text=True, close_fds=True)
            open_too = subprocess.run(command, capture_output=True, text=True, close_fds=False)
            # The descriptors that the test runner passes on are the same with and without a broker.
            handed_on = sum(
                os.get_inheritable(fd) for fd, _ in descriptors() if is_open(fd) and fd > 2
            )
            assert int(open_too.stdout) - int(alone.stdout) <= handed_on
            names = {fd: name for fd, name in descriptors() if is_open(fd)}
            ours = [fd for fd, name in names.items() if str(broker.directory) in name]
            assert ours and not any(os.get_inheritable(fd) for fd in ours)


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
