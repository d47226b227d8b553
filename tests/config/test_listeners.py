import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.listeners import is_loopback, parse_listeners


def config(**settings):
    return BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})


def bound(**settings):
    return [str(listener) for listener in config(**settings).listeners]


def test_an_empty_host_is_loopback():
    assert bound(listeners="PLAINTEXT://:9092") == ["PLAINTEXT://127.0.0.1:9092"]
    assert bound() == ["PLAINTEXT://127.0.0.1:9092"]


def test_names_ipv6_and_port_zero():
    made = config(
        listeners="a://[::1]:0, B://localhost:0",
        listener_security_protocol_map="A:PLAINTEXT,b:plaintext",
        inter_broker_listener_name="a",
    )
    assert [str(x) for x in made.listeners] == ["A://[::1]:0", "B://localhost:0"]
    assert made.listeners[0].host == "::1"
    assert made.inter_broker_listener_name == "A"


def test_one_port_for_both_families():
    text = "A://127.0.0.1:9092,B://[::1]:9092"
    protocols = "A:PLAINTEXT,B:PLAINTEXT"
    made = bound(
        listeners=text, listener_security_protocol_map=protocols, inter_broker_listener_name="B"
    )
    assert len(made) == 2


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "PLAINTEXT occurs more than once"),
        ({"listeners": "PLAINTEXT://:9092,SSL://:9092"}, "more than one listener has port 9092"),
        ({"listeners": "PLAINTEXT://:70000"}, "not an address"),
        ({"listeners": "PLAINTEXT:9092"}, "not an address"),
        ({"listeners": "://:9092"}, "not an address"),
        ({"listeners": "PLAINTEXT://a/b:9092"}, "not an address"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "not an address"),
        ({"listeners": ""}, "nothing for clients"),
        ({"listeners": "C://:9", "controller_listener_names": "C"}, "nothing for clients"),
        ({"listeners": "INSIDE://:9092"}, "no protocol is known"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "allow.unauthenticated.remote=true"),
        ({"listeners": "PLAINTEXT://myhost:9092"}, "allow.unauthenticated.remote=true"),
        ({"listeners": "PLAINTEXT://[::]:9092"}, "allow.unauthenticated.remote=true"),
        ({"host_name": "10.1.2.3"}, "allow.unauthenticated.remote=true"),
        ({"listener_security_protocol_map": "A:B"}, "is not an entry"),
        ({"listener_security_protocol_map": "A:SSL,a:SSL"}, "more than once"),
        ({"advertised_listeners": "OTHER://x:1"}, "not among the listeners"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect"),
        ({"inter_broker_listener_name": "X"}, "X is not in advertised.listeners"),
        ({"security_inter_broker_protocol": "SSL"}, "SSL is not in advertised.listeners"),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "SSL"},
            "exclude each other",
        ),
    ],
)
def test_refused_with_one_line(settings, reason):
    with pytest.raises(ConfigError) as caught:
        config(**settings)
    (line,) = caught.value.problems
    assert reason in line


def test_every_address_needs_an_advertised_one():
    settings = {"listeners": "PLAINTEXT://0.0.0.0:9092", "allow_unauthenticated_remote": "true"}
    with pytest.raises(ConfigError, match="Set advertised.listeners"):
        config(**settings)
    made = config(**settings, advertised_listeners="PLAINTEXT://kafka.example:19092")
    assert [str(x) for x in made.advertised_listeners] == ["PLAINTEXT://kafka.example:19092"]


def test_an_address_that_is_opened_to_others_is_warned_of():
    settings = {"listeners": "PLAINTEXT://10.1.2.3:9092", "allow_unauthenticated_remote": "true"}
    [line] = [text for text in config(**settings).warnings if "10.1.2.3" in text]
    assert "read, write and delete all data" in line
    assert not any("delete all data" in text for text in config().warnings)


def test_a_secured_entry_of_the_map_that_no_listener_uses_is_fine():
    assert bound(listener_security_protocol_map="PLAINTEXT:PLAINTEXT,X:SASL_SSL")


def test_a_secured_controller_listener_is_not_bound_and_not_refused():
    made = config(
        listeners="PLAINTEXT://:9092,C://:9093",
        controller_listener_names="C",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,C:SSL",
    )
    assert [listener.name for listener in made.listeners] == ["PLAINTEXT"]


def test_old_names():
    assert bound(host_name="127.0.0.2", port="9999") == ["PLAINTEXT://127.0.0.2:9999"]
    assert bound(port="9999") == ["PLAINTEXT://127.0.0.1:9999"]
    made = config(port="9999", advertised_host_name="h", advertised_port="7")
    assert [str(x) for x in made.advertised_listeners] == ["PLAINTEXT://h:7"]
    made = config(port="9999", advertised_host_name="h")
    assert [str(x) for x in made.advertised_listeners] == ["PLAINTEXT://h:9999"]
    made = config(advertised_port="7")
    assert [str(x) for x in made.advertised_listeners] == ["PLAINTEXT://127.0.0.1:7"]
    assert bound(host_name="x", listeners="PLAINTEXT://:1") == ["PLAINTEXT://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True)]
    + [("127.evil.example.org", False), ("127.0.0.1.nip.io", False), ("10.0.0.1", False)]
    + [("0.0.0.0", False), ("::", False), ("127.0.0.999", False)],
)
def test_only_sure_addresses_count_as_loopback(host, expected):
    assert is_loopback(host) is expected


@given(st.text(alphabet="AB:/[]9,. ", max_size=30))
def test_any_text_is_listeners_or_a_config_error(text):
    try:
        found = parse_listeners(text, "listeners")
    except ConfigError:
        return
    assert parse_listeners(",".join(map(str, found)), "listeners") == found
