"""Brokers for tests of transactions."""

import pytest
from transactions.native_twins import started
from transactions.simulation import World


@pytest.fixture
def broker(tmp_path):
    with started(tmp_path, "os") as broker:
        yield broker


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """One broker with log.durability=os, and one with fsync, whose steps wait for a flush."""
    with (
        started(tmp_path_factory.mktemp("os"), "os") as at_once,
        started(tmp_path_factory.mktemp("fsync"), "fsync") as flushed,
    ):
        yield at_once, flushed


@pytest.fixture(autouse=True)
def worlds():
    yield
    World.close_all()
