"""docs/compatibility.md lists exactly what is tested."""

import re

import pytest
from compat.administrators import ADMINISTRATORS
from compat.coverage import AREAS, ROOT, clients, page, protected
from compat.java import driver
from compat.matrix import CLIENTS, JAVA_VERSIONS, NODE_CLIENTS
from compat.test_groups import MEMBERS
from compat.test_transactions import READERS, WRITERS

# For each area the clients in the parameters of its tests.
PARAMETERS = {
    "produce": {*CLIENTS, *WRITERS},
    "consume": {*CLIENTS, *READERS, "platformatic"},
    "groups": set(MEMBERS),
    "transactions": {*WRITERS, "kcat"},
    "admin": set(ADMINISTRATORS),
}
CELLS = [(client, area) for client in clients() for area in client.tests]
PROTECTED = sorted({test for tests in protected().values() for test in tests.values()})


def test_the_page_is_the_tables():
    assert (ROOT / "docs" / "compatibility.md").read_text() == page()


@pytest.mark.parametrize("client, area", CELLS, ids=lambda one: getattr(one, "title", one))
def test_a_test_that_is_named_is_there_and_has_the_client(client, area):
    path, name = client.tests[area].split("::")
    text = (ROOT / path).read_text()
    assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{path} has no {name}"
    assert client.parameter is None or client.parameter in PARAMETERS[area]


@pytest.mark.parametrize("test", PROTECTED)
def test_a_test_of_logins_that_is_named_is_there(test):
    path, name = test.split("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_every_client_that_is_tested_has_a_row():
    rows = {client.parameter: client for client in clients()}
    everybody = {*CLIENTS, *NODE_CLIENTS, *MEMBERS, *WRITERS, *READERS, *ADMINISTRATORS}
    assert everybody == set(rows) - {None}
    for name, version in JAVA_VERSIONS.items():
        assert rows[name].version == version
    for area in AREAS:
        missing = {name for name in PARAMETERS[area] & set(rows) if area not in rows[name].tests}
        assert not missing, f"tested for {area}, and not in the table: {missing}"


def test_the_java_versions_have_jars_to_fetch():
    text = (ROOT / "tests" / "run").read_text()
    assert all(version in text for version in JAVA_VERSIONS.values()), driver.SOURCE
