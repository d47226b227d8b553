"""A broker with an authorizer, whose rules a test gives and takes without a request."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barnabas import Broker
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.acl_codes import ALLOW, LITERAL
from barnabas.security.authorizer import Authorizer

ANONYMOUS = "User:ANONYMOUS"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "log.durability": "os",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass
class Ruled:
    broker: Broker

    @property
    def address(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def authorizer(self) -> Authorizer:
        found = self.broker.node.opened.authorizer
        assert found is not None
        return found

    @contextlib.contextmanager
    def rights(
        self, rights: Iterable[tuple[int, int, str]], who: str = ANONYMOUS
    ) -> Iterator[None]:
        """(operation, resource type, name) each, until the end."""
        entries: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for operation, kind, name in rights:
            entry = AccessControlEntry(who, "*", operation, ALLOW)
            entries.setdefault(ResourcePattern(kind, name, LITERAL), set()).add(entry)
        outcomes = self.authorizer.store.change(entries, {})
        assert not any(outcomes.values())
        try:
            yield
        finally:
            self.authorizer.store.change({}, entries)


def on_zookeeper(server) -> dict[str, str]:
    """The settings of the only broker of a cluster, which serves what other brokers would ask."""
    return {
        "metadata.store": "zookeeper",
        "zookeeper.connect": server.connect(server.new_chroot()),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "share.coordinator.state.topic.replication.factor": "1",
    }


@contextlib.contextmanager
def ruled_broker(folder, **settings) -> Iterator[Ruled]:
    with Broker(SETTINGS | {"log.dirs": str(folder)} | settings) as broker:
        yield Ruled(broker)
