"""`barnabas users add` creates the first SCRAM user in the directory of a stopped broker."""

import base64
import hashlib
import io
import sys

import pytest
from security.login_broker import HASHES, PASSWORD, login_broker, scram_login

from barnabas.cli import main


def add(tmp_path, *words):
    return main(["users", "add", *words, "--set", f"log.dirs={tmp_path / 'data'}"])


def login_as(tmp_path, user, mechanism, password):
    """The error code, and whether the broker's signature proved that it knows the password."""
    with login_broker(tmp_path) as login, login.connect() as c:
        _, last, expected = scram_login(c, mechanism, user, password)
        return last[0], last[2] == expected


def secret(tmp_path, text, mode=0o600):
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_first_user_logs_in(tmp_path, capsys, mechanism):
    words = ("--mechanism", mechanism, "--password-file", secret(tmp_path, PASSWORD + "\n"))
    assert add(tmp_path, "admin", *words, "--iterations", "8192") == 0
    assert f"set the {mechanism} credential of user admin" in capsys.readouterr().err
    assert login_as(tmp_path, "admin", mechanism, PASSWORD) == (0, True)
    assert login_as(tmp_path, "admin", mechanism, PASSWORD + "x") == (58, False)


def test_a_user_is_added_to_a_directory_that_was_used_and_stays_clean(tmp_path):
    with login_broker(tmp_path):
        pass
    marker = tmp_path / "data" / ".kafka_cleanshutdown"
    assert marker.exists()
    assert add(tmp_path, "admin", "--password-file", secret(tmp_path, PASSWORD)) == 0
    assert marker.exists() and not (tmp_path / "data" / ".lock").exists()
    assert login_as(tmp_path, "admin", "SCRAM-SHA-512", PASSWORD) == (0, True)


def test_the_form_of_kafka_storage(tmp_path):
    salted = hashlib.pbkdf2_hmac("sha512", b"other", b"salty", 5000)
    assert (
        add(
            tmp_path,
            "--add-scram",
            f'SCRAM-SHA-256=[name=alice,password="{PASSWORD}",iterations=4096]',
            "--add-scram",
            f"SCRAM-SHA-512=[name=bob,iterations=5000,salt={base64.b64encode(b'salty').decode()},"
            f"saltedpassword={base64.b64encode(salted).decode()}]",
        )
        == 0
    )
    assert login_as(tmp_path, "alice", "SCRAM-SHA-256", PASSWORD) == (0, True)
    assert login_as(tmp_path, "bob", "SCRAM-SHA-512", "other") == (0, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "NAME is missing"),
        (("--add-scram", "SCRAM-SHA-256"), "not MECHANISM=["),
        (("--add-scram", "SCRAM-SHA-1=[name=a,password=b]"), "not a SCRAM mechanism"),
        (("--add-scram", "SCRAM-SHA-256=[password=b]"), "name of the user is missing"),
        (("--add-scram", "SCRAM-SHA-256=[name=a]"), "one of password and saltedpassword"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=]"), "is empty"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b,iterations=4095]"), "4096 to 16384"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b,iterations=16385]"), "4096 to 16384"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b,iterations=x]"), "not a number"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,saltedpassword=YQ==]"), "needs its salt"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b,salt=!]"), "not base64"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,password=b,other=c]"), "not pairs key=value"),
        (("--add-scram", "SCRAM-SHA-256=[name=a,name=b,password=c]"), "not pairs key=value"),
        (("a" * 1025, "--password-file", "SECRET"), "must not exceed 1024"),
    ],
)
def test_a_wrong_user_changes_nothing(tmp_path, capsys, words, text):
    path = secret(tmp_path, "sesame-street")
    assert add(tmp_path, *(path if word == "SECRET" else word for word in words)) == 1
    shown = capsys.readouterr().err
    assert text in shown and shown.count("\n") == 1 and "sesame" not in shown
    if len(words) < 3:
        assert not (tmp_path / "data").exists()


def test_a_password_file_that_others_can_read_is_refused(tmp_path, capsys):
    assert add(tmp_path, "admin", "--password-file", secret(tmp_path, PASSWORD, 0o644)) == 1
    assert "chmod 600" in capsys.readouterr().err


def test_the_password_comes_from_a_pipe_only_when_asked(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(PASSWORD + "\n"))
    assert add(tmp_path, "admin") == 1
    assert "the password is missing" in capsys.readouterr().err
    assert add(tmp_path, "admin", "--password-file", "-") == 0
    assert login_as(tmp_path, "admin", "SCRAM-SHA-512", PASSWORD) == (0, True)


def test_a_running_broker_is_left_alone(tmp_path, capsys):
    with login_broker(tmp_path):
        assert add(tmp_path, "admin", "--password-file", secret(tmp_path, PASSWORD)) == 1
        assert "another broker is using" in capsys.readouterr().err
