"""`barnabas users` of a broker that runs and of one that does not: list, add, remove, --json."""

import json

import pytest
from security.login_broker import PASSWORD, login_broker, scram_login

from barnabas.cli import main


def secret(folder, text=PASSWORD):
    path = folder / "secret"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@pytest.fixture(params=["running", "stopped"])
def users(request, tmp_path, capsys):
    """Runs `barnabas users`; gives the status, standard output and standard error."""

    def run(*words):
        status = main(["users", *words, *where])
        said = capsys.readouterr()
        assert PASSWORD not in said.out + said.err
        return status, said.out, said.err

    if request.param == "running":
        with login_broker(tmp_path) as login:
            where = ("-b", login.plain)
            yield run
    else:
        where = ("--set", f"log.dirs={tmp_path / 'data'}")
        yield run


def test_a_user_is_listed_set_and_removed(users, tmp_path):
    assert users("list") == (0, "", "no users\n")
    file = secret(tmp_path)
    assert users("add", "alice", "--password-file", file)[0] == 0
    more = ("--mechanism", "SCRAM-SHA-256", "--iterations", "8192", "--json")
    status, out, _ = users("add", "alice", "--password-file", file, *more)
    assert status == 0
    assert json.loads(out) == {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192}
    assert users("add", "bob", "--password-file", file)[0] == 0
    status, out, _ = users("list", "--json")
    assert json.loads(out) == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    status, out, _ = users("list", "bob")
    assert status == 0 and out.splitlines()[1].split() == ["bob", "SCRAM-SHA-512", "4096"]
    status, out, _ = users("remove", "alice", "--mechanism", "SCRAM-SHA-256", "--json")
    assert json.loads(out) == {"user": "alice", "mechanism": "SCRAM-SHA-256"}
    assert users("remove", "bob")[0] == 0
    rows = json.loads(users("list", "--json")[1])
    assert [(row["user"], row["mechanism"]) for row in rows] == [("alice", "SCRAM-SHA-512")]


def test_what_is_not_there_cannot_be_removed(users, tmp_path):
    status, _, said = users("remove", "carol")
    assert status == 1 and "carol" in said and said.count("\n") == 1
    assert users("add", "alice", "--password-file", secret(tmp_path))[0] == 0
    status, _, said = users("remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert status == 1 and "no SCRAM-SHA-256 credential" in said
    status, _, said = users("remove", "alice", "--mechanism", "PLAIN")
    assert status == 1 and "use SCRAM-SHA-256 or SCRAM-SHA-512" in said
    assert users("list")[1].count("alice") == 1


def test_a_user_of_a_running_broker_logs_in_until_removed(tmp_path):
    with login_broker(tmp_path) as login:
        where = ("-b", login.plain)

        def code():
            with login.connect() as c:
                _, last, _ = scram_login(c, "SCRAM-SHA-512", "dave", "other-secret")
                return 58 if last is None else last[0]

        assert code() == 58
        file = secret(tmp_path, "other-secret")
        assert main(["users", "add", "dave", "--password-file", file, *where]) == 0
        assert code() == 0
        assert main(["users", "remove", "dave", *where]) == 0
        assert code() == 58
