"""JAAS lines and files. Kafka's JaasConfig and Java's ConfigFile are the models."""

import random

import pytest

from barnabas.config import ConfigError
from barnabas.config.jaas import parse_file, parse_line

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text):
    [module] = parse_line(text)
    return dict(module.options)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("m.M required;", {}),
        ("m.M REQUIRED a=b;", {"a": "b"}),
        (
            'm.M required user_alice="a b" user_b-c=\'d"e\';',
            {"user_alice": "a b", "user_b-c": 'd"e'},
        ),
        ('m.M required\n  a = "x"\n;', {"a": "x"}),
        (r'm.M required a="q\"w\\e\tr\101\0";', {"a": 'q"w\\e\trA\0'}),
        ('m.M required a="é€";', {"a": "é€"}),
        ("/* x; */ m.M // y\n required /z\n a=b;", {"a": "b"}),
        ('m.M required a="//no /*comment*/";', {"a": "//no /*comment*/"}),
        ('m.M required a="1" a="2";', {"a": "2"}),
        ("m.M required a=b1.2-3;", {"a": "b1.2-3"}),
        ('m.M required a="";', {"a": ""}),
    ],
)
def test_options(text, found):
    assert options(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   /* */",
        "m.M",
        "m.M required",
        "m.M needed;",
        "m.M required a;",
        "m.M required a=;",
        "m.M required a=1;",
        'm.M required a="b"',
        "m.M required =b;",
        "; required;",
        "m.M required a==b;",
        'm.M required a="open;',
        "x" * (1 << 21),
    ],
)
def test_a_wrong_line_is_refused(text):
    with pytest.raises(ConfigError):
        parse_line(text)


def test_no_error_and_no_repr_holds_a_password():
    line = f'{PLAIN} required user_a="SeCret" user_b="SeCret2";'
    assert "SeCret" not in repr(parse_line(line))
    for at in range(len(line)):
        try:
            parse_line(line[:at])
        except ConfigError as error:
            assert "SeCret" not in str(error), line[:at]


@pytest.mark.parametrize(
    "text", ['"SeCret" x;', '"SeCret" required a;', 'm.M "SeCret";', 'm.M required "SeCret" b;']
)
def test_no_error_holds_a_quoted_text(text):
    with pytest.raises(ConfigError) as caught:
        parse_line(text)
    assert "SeCret" not in str(caught.value)


def test_random_text_is_parsed_or_refused():
    rng = random.Random(17)
    alphabet = "aM.;=\"'\\/*{}- \n1é\x80"
    for _ in range(20_000):
        text = "".join(rng.choices(alphabet, k=rng.randrange(30)))
        for parse in (parse_line, parse_file):
            try:
                parse(text)
            except ConfigError:
                pass


def test_sections_of_a_file():
    found = parse_file(
        f'KafkaServer {{ {PLAIN} required user_a="b"; x.Y optional; }};\n'
        "// clients\nsafe.KafkaServer { m.M required; };"
    )
    assert [module.name for module in found["KafkaServer"]] == [PLAIN, "x.Y"]
    assert [module.name for module in found["safe.KafkaServer"]] == ["m.M"]


@pytest.mark.parametrize(
    "text", ["K {", "K { m.M required; }", "K m.M required;", "K {}; K {};", "{ };", "K { m.M; };"]
)
def test_a_wrong_file_is_refused(text):
    with pytest.raises(ConfigError):
        parse_file(text)
