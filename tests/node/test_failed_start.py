"""A start that fails leaves a clean log directory clean: the next start checks no log."""

import logging
import socket

import pytest
from api.admin_calls import admin_on

from barnabas.node import CannotStart

MARK = ".kafka_cleanshutdown"


@pytest.fixture
def taken_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def failed_start(tmp_path, taken_port, cause):
    """Starts that fail after the logs were opened."""
    if cause == "port in use":
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{taken_port}"}
    else:
        settings = {"plugins": "no-such-plugin"}
    with pytest.raises(CannotStart) as failed, admin_on(tmp_path, **settings):
        pass
    return str(failed.value)


@pytest.mark.parametrize("cause", ["port in use", "plugin not found"])
def test_failed_start_keeps_the_clean_mark(tmp_path, taken_port, caplog, cause):
    with admin_on(tmp_path) as a:
        a.create("t")
        assert a.produce("t", count=3) == 0
        mark = a.data / MARK
    said = failed_start(tmp_path, taken_port, cause)
    assert str(taken_port) in said or "no-such-plugin" in said
    assert mark.exists()
    with caplog.at_level(logging.INFO), admin_on(tmp_path) as a:
        assert not mark.exists()
        assert a.offset("t", -1) == 3
    assert "was closed cleanly" in caplog.text and "not closed cleanly" not in caplog.text


def test_failed_first_start_is_no_unclean_stop(tmp_path, taken_port, caplog):
    failed_start(tmp_path, taken_port, "port in use")
    with caplog.at_level(logging.INFO), admin_on(tmp_path):
        pass
    assert "not closed cleanly" not in caplog.text


def test_failed_start_after_an_unclean_stop_is_not_called_clean(tmp_path, taken_port):
    with admin_on(tmp_path) as a:
        a.create("t")
        mark = a.data / MARK
    mark.unlink()
    failed_start(tmp_path, taken_port, "port in use")
    assert not mark.exists()
