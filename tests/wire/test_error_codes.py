"""Each error code of Kafka 4.4 has a class with Kafka's name and retriability."""

import csv

import pytest
from oracle.vectors import VECTORS

from barnabas import errors

with open(VECTORS / "error-codes.tsv", encoding="utf-8") as table:
    ROWS = list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_codes_are_those_of_kafka():
    codes = {int(row["code"]) for row in ROWS} - {errors.NONE}
    assert set(errors.ERRORS) == codes
    assert len(codes) == 137


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_name_and_retriability(row):
    code = int(row["code"])
    assert errors.name_of(code) == row["name"]
    if code != errors.NONE:
        cls = errors.error_of(code)
        assert cls.code == code
        assert cls.retriable is (row["retriable"] == "yes")
        assert issubclass(cls, errors.RetriableError) is cls.retriable
        assert cls is getattr(errors, cls.__name__)


def test_message_of_an_error():
    error = errors.UnknownTopicOrPartition("no topic t")
    assert (error.code, error.name, error.message) == (
        3,
        "UNKNOWN_TOPIC_OR_PARTITION",
        "no topic t",
    )
    assert str(errors.UnknownTopicOrPartition()) == errors.UnknownTopicOrPartition.meaning
    with pytest.raises(errors.KafkaError):
        raise error


def test_unknown_codes():
    assert errors.error_of(9999) is errors.UnknownServerError
    assert errors.name_of(9999) == "UNKNOWN_CODE_9999"
    with pytest.raises(ValueError, match="success"):
        errors.error_of(0)
