"""A broker in a control group of 64 MB: hostile clients get errors, others are served, and the
kernel does not kill it. With the byte budgets of a large machine it does."""

import contextlib
import socket
import struct
import threading
import time

import pytest
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port
from hostile.control_groups import MEMORY, memory_group, missing
from hostile.raw import error_of
from hostile.test_bad_inputs import compressed
from hostile.test_bombs import CODECS, TOO_LARGE, ZEROS
from node.test_settings import batches, create, produce

pytestmark = [
    pytest.mark.takes(seconds=12),
    pytest.mark.skipif(missing(MEMORY) is not None, reason=str(missing(MEMORY))),
]

LIMIT_BYTES = 64 << 20
LARGE_MACHINE = {
    "queued.max.request.bytes": 256 << 20,
    "socket.request.max.bytes": 100 << 20,
    "max.decompressed.bytes": 64 << 20,
    "log.cleaner.dedupe.buffer.size": 128 << 20,
}
SETTINGS = {"request.receive.timeout.ms": 2000, "metrics.port": -1}
FRAME_BYTES, STRANGERS, THEIR_ADDRESS = 7 << 20, 20, "127.0.0.2"
LOADS, LOAD_S = 3, 5.0
BOMB_PIECES = 40


def almost_whole(broker, stop) -> None:
    """Sends a frame without its last byte, again and again."""
    frame = struct.pack(">ihhi", FRAME_BYTES, 0, 8, 1) + bytes(FRAME_BYTES - 9)
    while not stop.is_set():
        with (
            contextlib.suppress(OSError),
            socket.create_connection(
                ("127.0.0.1", broker.port), 5, source_address=(THEIR_ADDRESS, 0)
            ) as connection,
        ):
            connection.sendall(frame)
            connection.recv(1)


def load(broker, stop, number, written, failures) -> None:
    try:
        with Wire(broker.address) as wire:
            while not stop.is_set():
                value = b"%d %d " % (number, len(written)) + bytes(200_000)
                assert produce(wire, f"t{number}", value).errorCode == 0
                written.append(value[:20])
    except (OSError, AssertionError) as error:
        failures.append(error)


def read(wire, topic) -> list[bytes]:
    """The beginnings of all values of a topic."""
    found: list[bytes] = []
    while rows := [r for batch in batches(wire, topic, offset=len(found)) for r in batch.records]:
        found += [row.value[:20] for row in rows]
    return found


def besieged(broker) -> tuple[list[list[bytes]], list[int], list[Exception]]:
    """Returns what each producer got acknowledged, the error codes of compression bombs, and the
    failures of producers."""
    with Wire(broker.address) as wire:
        for number in range(LOADS):
            create(wire, f"t{number}", {"segment.bytes": 8 << 20})
        create(wire, "bombs", {"max.message.bytes": 8 << 20})
    stop = threading.Event()
    written: list[list[bytes]] = [[] for _ in range(LOADS)]
    failures: list[Exception] = []
    threads = [
        threading.Thread(target=load, args=(broker, stop, number, rows, failures))
        for number, rows in enumerate(written)
    ]
    threads += [
        threading.Thread(target=almost_whole, args=(broker, stop)) for _ in range(STRANGERS)
    ]
    for thread in threads:
        thread.start()
    try:
        codes = []
        end = time.monotonic() + LOAD_S
        with Wire(broker.address) as wire:
            for name, codec in CODECS.items():
                bomb = compressed(codec, ZEROS[name](BOMB_PIECES))
                codes.append(error_of(wire, bomb, topic="bombs"))
        time.sleep(max(0, end - time.monotonic()))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return written, codes, failures


def test_hostile_clients_do_not_end_it(tmp_path):
    with memory_group(LIMIT_BYTES) as group:
        with BrokerProcess(tmp_path, free_port(), SETTINGS, group.prefix) as broker:
            assert any("may use 67,108,864 bytes of memory" in line for line in broker.lines)
            written, codes, failures = besieged(broker)
            assert not failures and codes == [TOO_LARGE] * len(CODECS)
            with Wire(broker.address) as wire:
                for number, rows in enumerate(written):
                    assert len(rows) > 10
                    assert read(wire, f"t{number}") == rows
            assert broker.process.poll() is None and group.kills == 1


def test_with_the_budgets_of_a_large_machine_the_kernel_kills_it(tmp_path):
    with memory_group(LIMIT_BYTES) as group:
        with BrokerProcess(tmp_path, free_port(), SETTINGS | LARGE_MACHINE, group.prefix) as broker:
            with contextlib.suppress(OSError):
                besieged(broker)
            assert broker.process.wait(20) == -9 and group.kills == 2
