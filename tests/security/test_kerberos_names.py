"""Short names of Kerberos principals, as Kafka's KerberosShortNamer makes them."""

import pytest

from barnabas.config import ConfigError
from barnabas.security.kerberos_names import NoShortName, ShortNames

RULES = [
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
    r"RULE:[1:$1@$0](.*@OTHER)s/@.*//U",
    r"RULE:[2:$2;$1](.*;host)s/;host//",
    r"RULE:[1:$1](a\$b)s/\$/\\/L",
    "DEFAULT",
]


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name@REALM", "service-name"),
        ("App.service-name/example.com@REALM", "service-name"),
        ("alice@REALM", "alice"),
        ("alice/admin@REALM", "alice"),
        ("alice@OTHER", "ALICE"),
        ("host/a.example.com@OTHER", "a.example.com"),
        ("a$b@REALM", "a\\b"),
    ],
)
def test_the_first_rule_that_fits_counts(principal, name):
    assert ShortNames(RULES, "REALM").of(principal) == name


@pytest.mark.parametrize(
    "principal", ["alice/x@OTHER", "alice", "a/b/c@REALM", "a@b@REALM", "@REALM", ""]
)
def test_a_name_that_no_rule_fits_has_none(principal):
    with pytest.raises(NoShortName):
        ShortNames(RULES, "REALM").of(principal)


@pytest.mark.parametrize("rule", ["RULE:[1:$1@$0]", "RULE:[2:$1/$2]"])
def test_a_short_name_is_simple(rule):
    names = ShortNames([rule], "REALM")
    for principal in ("alice@REALM", "alice/x@REALM"):
        with pytest.raises(NoShortName):
            names.of(principal)


def test_case_and_repetition():
    assert ShortNames(["RULE:[1:$1]/L"], "R").of("ALICE@R") == "alice"
    assert ShortNames(["RULE:[1:$1]/U"], "R").of("alice@R") == "ALICE"
    assert ShortNames(["RULE:[1:$1]s/a/b/"], "R").of("aaa@R") == "baa"
    assert ShortNames(["RULE:[1:$1]s/a/b/g"], "R").of("aaa@R") == "bbb"
    assert ShortNames(["RULE:[1:$1](a*)s/a/b/g/U"], "R").of("aaa@R") == "BBB"


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "DEFAULT/L",
        "RULE",
        "RULE:[1:$1",
        "RULE:[0:$1]",
        "RULE:[3:$1]",
        "RULE:[1:$2]",
        "RULE:[1:$1](a",
        "RULE:[1:$1](a*)s/a",
        "RULE:[1:$1](*)",
        "RULE:[1:$1]s/(/x/",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/b/x",
    ],
)
def test_an_invalid_rule_is_refused(rule):
    with pytest.raises(ConfigError):
        ShortNames([rule], "R")
