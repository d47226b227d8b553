"""Tests what a broker writes about itself into the model of ZooKeeper."""

from simulation.zookeeper_model import Server, Session

from barnabas.metadata import znodes
from barnabas.server.registration import take_control


def tree():
    made = Session(Server(lambda: 1_700_000_000_000))
    made.ensure_paths(["/brokers/ids"])
    return made


def test_a_controller_that_is_elected_again_in_its_session_keeps_its_epoch():
    """With a later epoch than the tree has, the check of the epoch would refuse all its writes, and
    no other broker could take its place."""
    session = tree()
    assert take_control(session, 1, 0) == 1
    assert take_control(session, 1, 0) == 1
    assert znodes.decode_controller_epoch(session.get(znodes.CONTROLLER_EPOCH_PATH)[0]) == 1


def test_a_controller_of_a_later_session_has_the_next_epoch():
    session = tree()
    assert take_control(session, 1, 0) == 1
    session._server.expire(session.session_id)
    session.disconnect()
    session.reconnect()
    assert take_control(session, 1, 0) == 2


def test_another_broker_does_not_take_its_place():
    session = tree()
    assert take_control(session, 1, 0) == 1
    assert take_control(Session(session._server), 2, 0) is None
