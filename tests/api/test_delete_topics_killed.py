"""The broker is killed while it deletes a topic: after the restart the topic exists, with all its
records and its configuration, or is completely deleted."""

import os
import signal
import threading
import time
from contextlib import closing

from api.admin_calls import TOPIC, Admin
from compat.support import Broker, Wire, create_topic, produce_batch

PARTITIONS = 8
DELAYS_S = (0.006, 0.012, 0.018, None)  # None: after the response; one takes about 20 ms
AT_ONCE_MAX = 12  # on a busy machine even a kill without delay may come after the deletion


class Running:
    """The part of a broker that Admin uses, for a broker in a separate process."""

    def __init__(self, broker):
        self.node = self
        self.config = self
        self.log_dirs = [broker.log_dir]


def killed_while_deleting(broker, delay_s):
    """Returns whether the deletion was answered before the kill."""
    answered = []

    def delete():
        try:
            with closing(Wire(broker.address)) as wire:
                answered.append(Admin(Running(broker), wire).delete("t"))
        except OSError:
            pass

    thread = threading.Thread(target=delete)
    thread.start()
    if delay_s is None:
        thread.join()
    else:
        time.sleep(delay_s)
    os.kill(broker.pid, signal.SIGKILL)
    thread.join()
    assert broker._process.wait() == -signal.SIGKILL
    return answered == [[0]]


def test_a_kill_leaves_the_topic_there_or_gone(tmp_path):
    seen = set()
    for turn, delay_s in enumerate([*DELAYS_S, *[0.0] * AT_ONCE_MAX]):
        if turn >= len(DELAYS_S) and (True, False) in seen:
            break
        folder = tmp_path / str(turn)
        broker = Broker("barnabas", folder, {"auto.create.topics.enable": "false"})
        try:
            create_topic(broker.address, "t", PARTITIONS, {"retention.bytes": "4096000"})
            produce_batch(broker.address, "t", [b"a", b"b", b"c"])
            answered = killed_while_deleting(broker, delay_s)
        finally:
            broker.stop()
        broker = Broker("barnabas", folder, {"auto.create.topics.enable": "false"})
        try:
            with closing(Wire(broker.address)) as wire:
                admin = Admin(Running(broker), wire)
                is_there = admin.names() == ["t"]
                assert not (answered and is_there)
                if is_there:
                    assert len(admin.directories("t")) == PARTITIONS
                    assert admin.offset("t", -1) == 3
                    assert admin.configs(TOPIC, "t")["retention.bytes"].value == "4096000"
                else:
                    assert admin.directories("t") == []
                    admin.create("t", 1)
                    assert (admin.offset("t", -2), admin.offset("t", -1)) == (0, 0)
                    assert admin.configs(TOPIC, "t")["retention.bytes"].value == "-1"
        finally:
            broker.stop()
        seen.add((is_there, answered))
    assert (True, False) in seen and (False, True) in seen
