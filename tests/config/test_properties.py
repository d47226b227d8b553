"""The grammar of settings files, compared with java.util.Properties
(golden/java-properties.json)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.properties import FILE_BYTES_MAX, parse_properties
from barnabas.config.settings import ConfigError

GOLDEN = json.loads((Path(__file__).parent / "golden" / "java-properties.json").read_text())


def loaded(text):
    return {entry.key: entry.value for entry in parse_properties(text)}


def test_four_hundred_texts_read_as_java_reads_them():
    differences = []
    for text, expected in GOLDEN["cases"]:
        try:
            found = loaded(text)
        except ConfigError:
            found = None
        if found != expected:
            differences.append((text, expected, found))
    assert len(GOLDEN["cases"]) == 400
    assert differences == []


def test_duplicates_keep_their_lines_and_order():
    entries = parse_properties("a=1\n\n# no\nb=2\\\n  3\na=4\n")
    assert [(e.key, e.value, e.line) for e in entries] == [
        ("a", "1", 1),
        ("b", "23", 4),
        ("a", "4", 6),
    ]


def test_bytes_are_utf8_or_else_latin1():
    assert parse_properties("a=é".encode())[0].value == "é"
    assert parse_properties("a=é".encode("latin-1"))[0].value == "é"
    assert parse_properties(b"\xef\xbb\xbfa=1")[0].key == "a"


def test_a_bad_escape_names_file_and_line():
    with pytest.raises(ConfigError, match="x.properties line 2"):
        parse_properties("a=1\nb=\\u12g4", "x.properties")


def test_a_huge_file_is_refused():
    with pytest.raises(ConfigError, match="larger than"):
        parse_properties(b"#" * (FILE_BYTES_MAX + 1))


@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_a_config_error(data):
    try:
        entries = parse_properties(data)
    except ConfigError:
        return
    assert all(isinstance(e.key, str) and e.line >= 1 for e in entries)
