"""Brokers whose native handlers take steps of transactions, and one where Python takes them all."""

import pytest
from transactions.native_twins import started, without_native_steps


@pytest.fixture
def broker(tmp_path):
    with started(tmp_path, "os") as broker:
        yield broker


@pytest.fixture(scope="module", params=["os", "fsync"])
def twins(tmp_path_factory, request):
    """The native one has the durability of the parameter."""
    with (
        started(tmp_path_factory.mktemp("native"), request.param) as native,
        started(tmp_path_factory.mktemp("python"), "fsync") as python,
    ):
        without_native_steps(python)
        yield native, python
