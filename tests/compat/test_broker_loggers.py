"""Kafka's own kafka-configs shows and changes the levels of a broker's loggers (BROKER_LOGGER)."""

import logging

import pytest
from compat.java.driver import missing
from compat.java.tool_runner import ToolRunner
from compat.support import KAFKA

from barnabas import Broker

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(missing(KAFKA) is not None, reason=str(missing(KAFKA))),
]
LOGGERS = ("--entity-type", "broker-loggers", "--entity-name", "1")
NAME = "barnabas.groups"


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    runner = ToolRunner(KAFKA, tmp_path_factory.mktemp("tools"))
    yield runner
    runner.close()


def test_kafka_configs_changes_levels_while_the_broker_runs(tmp_path, tools):
    logger = logging.getLogger(NAME)
    before = logger.level
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    try:
        with Broker(settings | {"broker.id": "1"}) as broker:

            def configs(*arguments: str) -> tuple[int, str]:
                where = ("--bootstrap-server", broker.bootstrap_servers, *LOGGERS)
                status, printed, complaints = tools.run("configs", *where, *arguments)
                return status, printed + complaints

            for level in ("DEBUG", "ERROR"):
                status, said = configs("--alter", "--add-config", f"{NAME}={level}")
                assert status == 0, said
                assert f"{NAME}={level} sensitive=false" in configs("--describe")[1]
                assert logger.getEffectiveLevel() == getattr(logging, level)
            status, said = configs("--alter", "--add-config", f"{NAME}=LOUD")
            assert status != 0 and "supported log level" in said
            assert logger.level == logging.ERROR
            status, said = configs("--alter", "--delete-config", NAME)
            assert status == 0, said
            assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)
