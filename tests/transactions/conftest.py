"""Brokers whose network threads take steps of transactions, and one that is all Python."""

import pytest
from transactions.native_twins import started


@pytest.fixture
def broker(tmp_path):
    with started(tmp_path, "os") as broker:
        yield broker


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    with (
        started(tmp_path_factory.mktemp("native"), "os") as native,
        started(tmp_path_factory.mktemp("python"), "fsync") as python,
    ):
        yield native, python
