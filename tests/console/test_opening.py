"""When the console opens, for which hosts, over which listener, and when it refuses the start."""

import argparse
import subprocess
import sys

import pytest
from console.console_broker import (
    FOR_TESTS,
    RULED,
    SAFE,
    Browser,
    open_broker,
    ruled_broker,
)
from tls.authority import Authority

from barnabas import Broker
from barnabas.cli.development_cluster import DevelopmentCluster
from barnabas.config import BrokerConfig
from barnabas.node import CannotStart

AUTHORITY = Authority()


def pem(folder, name="CN=page"):
    issued = AUTHORITY.issue(name)
    path = folder / "page.pem"
    path.write_text(issued.key_pem() + issued.certificate_pem)
    path.chmod(0o600)
    return str(path)


def refused(settings):
    with pytest.raises(CannotStart) as caught:
        Broker(FOR_TESTS | settings).start()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_there_is_no_console_unless_console_port_is_set():
    with Broker(FOR_TESTS | {"console.port": "-1"}) as broker:
        assert broker.node.console is None
    with Broker(FOR_TESTS | {"console.port": "0"}) as broker:
        assert Browser(broker.node.console.address).get("/topics").status == 200


def test_console_ssl_location_serves_it_over_tls(tmp_path):
    settings = {"console.ssl.location": pem(tmp_path), "console.host": "0.0.0.0"}
    with ruled_broker(**settings) as watched:
        address = watched.console.address.replace("0.0.0.0", "localhost")
        assert address.startswith("https://")
        browser = Browser(address, AUTHORITY.client_context())
        assert browser.log_in().status == 303
        assert browser.get("/topics").status == 200


def test_console_host_for_others_needs_tls_and_logins(tmp_path):
    remote = {"console.host": "0.0.0.0"}
    assert "console.ssl.location" in refused(RULED | remote)
    assert "console.listener.name" in refused(remote)
    assert "console.listener.name" in refused(remote | {"console.ssl.location": pem(tmp_path)})
    with open_broker(**remote, **{"allow.unauthenticated.remote": "true"}) as watched:
        address = watched.console.address.replace("0.0.0.0", "127.0.0.1")
        assert Browser(address).get("/topics", Host="broker.example").status == 200


def test_console_listener_name_says_which_logins_count():
    two = RULED | {
        "listeners": "PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    with ruled_broker(**two) as watched:
        assert watched.browser().get("/topics").status == 200
    with ruled_broker(**two, **{"console.listener.name": "safe"}) as watched:
        assert watched.browser().get("/topics").status == 303
    text = refused(two | {"console.listener.name": "OTHER"})
    assert "console.listener.name=OTHER" in text and "PLAINTEXT, SAFE" in text


def test_a_listener_without_passwords_is_refused(tmp_path):
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": pem(tmp_path)}
    ssl = {"listeners": "SSL://127.0.0.1:0", "inter.broker.listener.name": "SSL"}
    assert "is SSL" in refused(keys | ssl)


def test_a_listener_with_tls_is_used_by_its_own_broker(tmp_path):
    """The broker's certificate has another name and an authority that nobody trusts."""
    settings = {
        "listener.security.protocol.map": "SAFE:SASL_SSL",
        SAFE + "ssl.keystore.type": "PEM",
        SAFE + "ssl.keystore.location": pem(tmp_path, "CN=another"),
    }
    with ruled_broker(**settings) as watched:
        browser = watched.logged_in()
        assert browser.get("/topics").status == 200
        assert browser.get("/broker").status == 200  # asks the broker at its advertised address


def test_a_port_in_use_and_a_bad_file_are_one_line(opened, tmp_path):
    port = opened.console.address.rpartition(":")[2]
    assert f"no console on 127.0.0.1:{port}: Address already in use" in refused(
        {"console.port": port}
    )
    (tmp_path / "bad.pem").write_text("no key")
    (tmp_path / "bad.pem").chmod(0o600)
    assert "console.ssl.location=" in refused({"console.ssl.location": str(tmp_path / "bad.pem")})


def test_a_missing_package_is_one_line(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("barnabas.console.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "pip install 'barnabas[console]'" in refused({})


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_without_logins_another_name_is_refused(opened, host):
    """A page of another site whose name points to 127.0.0.1 (DNS rebinding)."""
    assert opened.browser().get("/topics", Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9500", "[::1]:80"])
def test_without_logins_a_name_of_this_host_is_answered(opened, host):
    assert opened.browser().get("/topics", Host=host).status == 200


def test_without_logins_nothing_can_be_changed(opened):
    opened.produce("kept", (None, b"1"))
    browser = opened.browser()
    assert "<form" not in browser.get("/topic?name=kept").text.replace('role="search"', "")
    form = {"name": "kept", "confirmed": "kept", "token": opened.console.site._nobody.token}
    for path in ("/topics/create", "/topic/delete", "/topic/config", "/group/delete", "/login"):
        assert browser.post(path, form).status == 403
    assert browser.get("/topic?name=kept").status == 200


def test_every_answer_has_the_headers_that_protect_it(ruled):
    browser = ruled.logged_in()
    paths = ("/topics", "/login", "/style.css", "/nothing", "/topic?name=absent", "/")
    for path in paths:
        reply = browser.get(path)
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src" not in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == (
            "max-age=3600" if path == "/style.css" else "no-store"
        )
        assert "<script" not in reply.text and "style=" not in reply.text


def test_bad_requests_are_refused(ruled):
    browser = ruled.logged_in()
    token = browser.get("/topics").token
    assert browser.get("/topics?page=x").status == 400
    assert browser.get("/topics?page=99999999999999999999999").status == 400
    assert browser.get("/topic").status == 400
    assert browser.get("/topics?" + "&".join(f"a{i}=1" for i in range(60))).status == 400
    assert browser.post("/topics/create", {"token": token, "name": "x" * 70_000}).status == 413
    assert browser._ask("PUT", "/topics", None, {}).status == 405


def test_the_console_stops_with_the_broker():
    with ruled_broker() as watched:
        address = watched.console.address
        browser = watched.logged_in()
        assert browser.get("/topics").status == 200
    with pytest.raises(OSError):
        Browser(address).get("/login")


def test_each_broker_of_a_development_cluster_has_its_own_console(tmp_path):
    config = BrokerConfig({"log.dirs": str(tmp_path), "console.port": "9500"})
    given = argparse.Namespace(cluster=3, config=None, settings=[], quiet=True)
    made = DevelopmentCluster(config, given)
    ports = [made._settings(number, "")["console.port"] for number in (1, 2, 3)]
    assert ports == ["9500", "9501", "9502"]


def test_start_names_the_address(tmp_path):
    ran = subprocess.Popen(
        [
            sys.executable, "-m", "barnabas", "start",
            *("--set", f"log.dirs={tmp_path}", "--set", "listeners=PLAINTEXT://127.0.0.1:0"),
            *("--set", "metrics.port=-1", "--set", "console.port=0"),
        ],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert ran.stderr is not None
        lines = []
        for line in ran.stderr:
            lines.append(line)
            if line.startswith("ready"):
                break
        assert any(line.startswith("console: http://127.0.0.1:") for line in lines), lines
    finally:
        ran.terminate()
        ran.wait(20)
