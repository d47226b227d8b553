"""Share groups (KIP-932) go on after `barnabas storage import` of directories of the real Kafka.

Their members are in __consumer_offsets, the states of records in __share_group_state. What Kafka
itself delivers after a restart on the same directory is what barnabas has to deliver."""

import pytest
from compat.support import rival
from takeover.importing import content, import_to
from takeover.kafka_share import DELIVERIES, delivered, fill, kafka, recorded

from barnabas import Broker


def test_a_recorded_group_goes_on_where_it_was(tmp_path, capsys):
    assert (
        import_to(capsys, tmp_path / "data", recorded("4.3.1", tmp_path / "kafka"))["groups"] == 1
    )
    with Broker({"log.dirs": tmp_path / "data"}, durable=False) as broker:
        assert delivered(broker.bootstrap_servers) == (DELIVERIES, 10)


@pytest.mark.java
@pytest.mark.only_long
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
def test_a_group_goes_on_as_with_kafka(tmp_path, capsys, version, end):
    """Kafka stops and starts again; what it delivers then is compared too."""
    if reason := rival.missing(version):
        pytest.skip(reason)
    with kafka(version, tmp_path) as before:
        member = fill(before.address)
        getattr(before, end)()
        member.close()
        source = content(before.log_dir)
        assert import_to(capsys, tmp_path / "data", before.log_dir)["groups"] == 1
        assert content(before.log_dir) == source
        listener = f"PLAINTEXT://{before.address}"
        with Broker({"log.dirs": tmp_path / "data", "listeners": listener}) as broker:
            ours = delivered(broker.bootstrap_servers)
        before.start()
        theirs = delivered(before.address)
    assert ours == theirs == (DELIVERIES, 10)
