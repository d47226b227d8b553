"""A controller of Apache Kafka with inter.broker.protocol.version 2.7 gives topics no ids."""

from types import SimpleNamespace

from barnabas.controller.controller import Controller
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.tree import SessionState

NOT_SERVED = "topics without an id are not served here: "


def test_a_broker_that_is_not_the_controller_names_them_once(caplog):
    reader = SimpleNamespace(state=ClusterState(controller_id=2))
    tree = SimpleNamespace(state=SessionState.CONNECTED)
    membership = SimpleNamespace(ensure=lambda: True)
    role = SimpleNamespace(fence=lambda: None)
    channels = SimpleNamespace(stop=lambda: None)
    controller = Controller(
        tree, reader, membership, role, None, None, None, channels, 1,
        frozenset, lambda: True, lambda _topic: None, bytes, lambda: 0,
    )  # fmt: skip

    def logged(*topics):
        caplog.clear()
        reader.state = ClusterState(controller_id=2, without_id=dict.fromkeys(topics))
        assert controller.step()
        return [row.message.partition(". The controller, ")[::2] for row in caplog.records]

    ends = "broker 2, gives ids with an inter.broker.protocol.version of 2.8 or later: set it on"
    assert logged() == []
    [(named, remedy)] = logged("b", "a")
    assert named == NOT_SERVED + "a, b" and remedy.startswith(ends)
    assert logged("b", "a") == []
    assert [named for named, _ in logged("a", "b", "c")] == [NOT_SERVED + "c"]
