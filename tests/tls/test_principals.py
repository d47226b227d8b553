"""Principals of certificates: their names as Java and Kafka make them, and their connections."""

import logging
import re
import ssl
from pathlib import Path

import pytest
from tls.test_listener import asked
from tls.tls_broker import (
    CLIENTS,
    PAIR,
    client_context,
    pem_settings,
    tls_broker,
    trust_settings,
)
from waiting import soon

from barnabas import Broker
from barnabas.security.principal_rules import InvalidRule, NoRule, PrincipalRules
from barnabas.stages.configured import CannotStart
from barnabas.tls.subject import BadName, subject_name

ROWS = Path(__file__).with_name("vectors").joinpath("principals.tsv").read_text().splitlines()
SUBJECTS = [line.split(" ", 1)[1].split("\t") for line in ROWS if line.startswith("subject ")]
MAPPED = [line.split(" ", 1)[1].split("\t") for line in ROWS if line.startswith("rules ")]
LOGGED = re.compile(r"on SAFE logged in as ('.*'|\".*\")$")


def unescaped(text: str) -> str:
    """A text of Principals.java. Two halves of a surrogate pair are one character here."""
    plain = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def test_names_are_those_of_java():
    different = []
    for subject, answer in SUBJECTS:
        try:
            ours = "= " + subject_name(bytes.fromhex(subject))
        except BadName:
            ours = "!"
        wanted = unescaped(answer) if answer.startswith("=") else "!"
        if ours != wanted:
            different.append((subject, ours, wanted))
    assert len(SUBJECTS) > 140 and different == []


@pytest.mark.parametrize("subject", [row[0] for row in SUBJECTS[:12]])
def test_a_name_that_is_cut_or_damaged_is_one_error(subject):
    whole = bytes.fromhex(subject)
    for end in range(len(whole)):
        with pytest.raises(BadName):
            subject_name(whole[:end])
    for place in range(len(whole)):
        for value in (0, 0x7F, 0x80, 0xFF):
            try:
                subject_name(whole[:place] + bytes([value]) + whole[place + 1 :])
            except BadName:
                pass


def test_rules_map_names_as_kafka_does():
    """A rule that Kafka cannot use for some name is refused here for all."""
    different = []
    unusable = {row[0] for row in MAPPED if row[2].startswith("! ") and "NoMatching" not in row[2]}
    for rules, name, answer in MAPPED:
        try:
            ours = "= " + PrincipalRules(rules).name_of(name)
        except (InvalidRule, NoRule) as error:
            ours = "! " + type(error).__name__
        if rules in unusable:
            wanted = "! InvalidRule"
        else:
            wanted = unescaped(answer) if answer.startswith("=") else "! NoRule"
        if ours != wanted:
            different.append((rules, name, ours, wanted))
    assert len(MAPPED) > 200 and different == []


@pytest.mark.parametrize("rules", ["default", "DEFAULT/L", "RULE:^CN=(.*?)$/$1/L/U"])
def test_an_invalid_rule_has_kafkas_words(rules):
    [answer] = {row[2] for row in MAPPED if row[0] == rules} or {""}
    with pytest.raises(InvalidRule) as caught:
        PrincipalRules(rules)
    if answer:
        assert unescaped(answer) == f"! IllegalArgumentException: {caught.value}"


def mutual(folder, auth="required"):
    return pem_settings(folder) | trust_settings(folder) | {"ssl.client.auth": auth}


def logged_in(caplog) -> list[str]:
    found = [LOGGED.search(record.getMessage()) for record in caplog.records]
    return [match[1][1:-1] for match in found if match]


def connected(served, folder, *names: str, version=None) -> None:
    """Asks something over one connection for each certificate."""
    for name in names:
        context = client_context(CLIENTS.issue(name, ()), folder)
        if version:
            context.maximum_version = version
        asked(served.port, context).close()


def test_the_subject_is_the_principal(tmp_path, caplog):
    caplog.set_level(logging.INFO, "barnabas.security")
    with tls_broker(tmp_path, mutual(tmp_path)) as served:
        connected(served, tmp_path, "O=Example,CN=alice")
        connected(served, tmp_path, "O=Example,CN=Łukasz", version=ssl.TLSVersion.TLSv1_2)
    assert logged_in(caplog) == ["User:CN=alice,O=Example", "User:CN=Łukasz,O=Example"]


def test_ssl_principal_mapping_rules(tmp_path, caplog):
    caplog.set_level(logging.INFO, "barnabas")
    rules = "RULE:^CN=([a-z]+),O=Example$/$1/U,RULE:^CN=(.*?),O=Other$/$1@other/"
    settings = mutual(tmp_path) | {"ssl.principal.mapping.rules": rules}
    with tls_broker(tmp_path, settings) as served:
        connected(served, tmp_path, "O=Example,CN=alice", "O=Other,CN=Bob")
        with pytest.raises((OSError, EOFError)):
            connected(served, tmp_path, "O=Nowhere,CN=mallory")
        why = "login: no rule of ssl.principal.mapping.rules matches"
        soon(lambda: why in caplog.text)
    assert logged_in(caplog) == ["User:ALICE", "User:Bob@other"]
    assert not any("mallory" in record.getMessage() for record in caplog.records)


def test_the_rules_of_a_listener_override_those_of_all(tmp_path, caplog):
    caplog.set_level(logging.INFO, "barnabas.security")
    settings = mutual(tmp_path) | {"ssl.principal.mapping.rules": "RULE:.*/everybody/"}
    own = {"listener.name.safe.ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/"}
    with tls_broker(tmp_path, settings | own) as served:
        connected(served, tmp_path, "CN=alice")
    assert logged_in(caplog) == ["User:alice"]


def test_without_a_certificate_a_client_is_anonymous(tmp_path, caplog):
    caplog.set_level(logging.INFO, "barnabas.security")
    with tls_broker(tmp_path, mutual(tmp_path, "requested")) as served:
        asked(served.port, client_context()).close()
        connected(served, tmp_path, "CN=alice")
    assert logged_in(caplog) == ["User:CN=alice"]


def test_a_resumed_session_has_the_principal_of_its_certificate(tmp_path, caplog):
    caplog.set_level(logging.INFO, "barnabas.security")
    with tls_broker(tmp_path, mutual(tmp_path)) as served:
        context = client_context(CLIENTS.issue("CN=alice", ()), tmp_path)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        first = asked(served.port, context)
        again = asked(served.port, context, session=first.session)
        assert again.session_reused
        first.close()
        again.close()
    assert logged_in(caplog) == ["User:CN=alice"] * 2


def test_a_rule_that_cannot_be_used_refuses_the_start(tmp_path):
    settings = PAIR | mutual(tmp_path) | {"ssl.principal.mapping.rules": "default"}
    with pytest.raises(CannotStart, match="ssl.principal.mapping.rules .* Invalid rule: `default`"):
        Broker(settings).start()


def test_many_connections_get_their_own_principals(tmp_path, caplog):
    """Each before its first request, also when all come at once."""
    caplog.set_level(logging.INFO, "barnabas.security")
    with tls_broker(tmp_path, mutual(tmp_path)) as served:
        contexts = [client_context(CLIENTS.issue(f"CN=u{i}", ()), tmp_path) for i in range(20)]
        clients = [asked(served.port, context) for context in contexts for _ in range(3)]
        for client in clients:
            client.close()
    assert sorted(logged_in(caplog)) == sorted(f"User:CN=u{i}" for i in range(20) for _ in range(3))
