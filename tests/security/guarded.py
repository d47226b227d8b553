"""A broker whose native handlers ask a set of rights, which a test gives and takes."""

import contextlib
import threading
from dataclasses import dataclass, field

from compat.support import Wire, create_topic

from barnabas import Broker
from barnabas.security.decisions import Decisions
from barnabas.server.request_handlers import ANSWERED_LATER
from barnabas.wire import request

READ, WRITE, CLUSTER_ACTION = 3, 4, 9
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
OFFSET_MAX = 2**31 - 1


@dataclass
class Guarded:
    """`given` has (operation, resource type, name); `asked` what the authorizer was asked."""

    broker: Broker
    given: set = field(default_factory=set)
    asked: list = field(default_factory=list)
    fails: bool = False
    decisions: Decisions | None = None
    pause: threading.Event = field(default_factory=threading.Event)

    def authorize(self, principal, host, operation, resource_type, name):
        self.asked.append((principal, host, operation, resource_type, name))
        self.pause.wait(10)
        if self.fails:
            raise RuntimeError("the authorizer of the test")
        return (operation, resource_type, name) in self.given

    @property
    def address(self):
        return self.broker.bootstrap_servers

    def give(self, *rights):
        self.given.update(rights)
        self.decisions.rules_changed()

    def take(self, *rights):
        self.given.difference_update(rights)
        self.decisions.rules_changed()

    def connect(self):
        return Wire(self.address)

    def topic(self, name):
        """Makes a topic and returns its id. Python answers what this takes."""
        create_topic(self.address, name)
        message = request(3)
        with self.connect() as wire:
            asked = message.cls(topics=[message.struct("topics")(name=name)])
            return wire.call(3, 12, asked).topics[0].topicId


@contextlib.contextmanager
def guarded(folder, **settings):
    with Broker({"log.dirs": str(folder), "log.durability": "os"} | settings) as broker:
        made = Guarded(broker)
        made.pause.set()
        node = broker.node
        made.decisions = Decisions(made.authorize, node.system.monotonic_ns)
        node.bound.reactor.set_permissions(made.decisions.table)
        handlers = node.serving.handlers
        answer = handlers.carry_out

        def carry_out(pending):
            if not pending.questions:
                return answer(pending)
            made.decisions.take(pending)
            return ANSWERED_LATER

        handlers.carry_out = carry_out
        yield made
