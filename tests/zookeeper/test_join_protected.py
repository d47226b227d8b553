"""`barnabas cluster join` into a ZooKeeper with access lists: secrets of the store stay secret."""

import pytest
from kazoo.exceptions import NoAuthError

from barnabas import Broker
from barnabas.cli import main


def test_only_the_broker_reads_users_and_changes_topics(zookeeper_server, zk, tmp_path, capsys):
    chroot = zookeeper_server.new_chroot()
    settings = {"log.dirs": tmp_path / "data", "num.network.threads": 1}
    with Broker(settings, durable=True) as broker:
        broker.create_topic("news")
    given = {
        "log.dirs": tmp_path / "data",
        "zookeeper.connect": zookeeper_server.connect(chroot),
        "zookeeper.set.acl": "true",
    }
    words = ["cluster", "join"]
    for name, value in given.items():
        words += ["--set", f"{name}={value}"]
    assert main(words) == 1
    assert "zookeeper.set.acl=true needs zookeeper.auth" in capsys.readouterr().err
    assert main([*words, "--set", "zookeeper.auth=digest:barnabas:secret"]) == 0
    assert "secret" not in capsys.readouterr().err
    anonymous = zk(zookeeper_server)
    with pytest.raises(NoAuthError):
        anonymous.get(f"{chroot}/config/users")
    assert b"topic_id" in anonymous.get(f"{chroot}/brokers/topics/news")[0]
    for change in (
        lambda: anonymous.set(f"{chroot}/brokers/topics/news", b""),
        lambda: anonymous.set(f"{chroot}/cluster/id", b""),
        lambda: anonymous.delete(f"{chroot}/brokers/topics/news", recursive=True),
    ):
        with pytest.raises(NoAuthError):
            change()
    own = zk(zookeeper_server, auth="barnabas:secret")
    assert own.get_children(f"{chroot}/config/users") == []
