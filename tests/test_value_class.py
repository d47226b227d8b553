"""`value_class` is told from `dataclass` by its price alone."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.value_class import NamedTuple, field, replace, value_class


class _Point:
    """Where."""

    x: int
    y: int = 2
    tags: Mapping[str, int] = field(default_factory=dict)
    secret: str = field(default="s", repr=False)

    def sum(self) -> int:
        return self.x + self.y


class _DataPoint:
    """Where."""

    x: int
    y: int = 2
    tags: Mapping[str, int] = dataclasses.field(default_factory=dict)
    secret: str = dataclasses.field(default="s", repr=False)

    def sum(self) -> int:
        return self.x + self.y


Point: Any = value_class()(_Point)
DataPoint: Any = dataclasses.dataclass(frozen=True, slots=True)(_DataPoint)
CALLS = [
    ((1,), {}),
    ((1, 3), {}),
    ((), {"x": 1, "secret": "t"}),
    ((1, 2, {"a": 1}, "u"), {}),
    ((), {}),
    ((1, 2, {}, "u", 5), {}),
    ((1,), {"x": 2}),
    ((1,), {"z": 2}),
]


def told(cls, args, named):
    try:
        made = cls(*args, **named)
    except TypeError as error:
        return str(error).replace("_DataPoint", "_Point")
    fields = made.x, made.y, made.tags, made.secret
    return fields, made.sum(), repr(made).replace("_DataPoint", "_Point")


@pytest.mark.parametrize(("args", "named"), CALLS)
def test_it_takes_and_refuses_what_a_dataclass_does(args, named):
    assert told(Point, args, named) == told(DataPoint, args, named)


def test_the_first_object_is_made_as_the_later_ones():
    @value_class()
    class Fresh:
        a: int
        b: list[int] = field(default_factory=list)

    first, second = Fresh(1), Fresh(a=1)
    assert first == second and first.b is not second.b
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Fresh()


def test_a_class_whose_first_object_is_refused_makes_the_next():
    @value_class()
    class Refused:
        a: int

    with pytest.raises(TypeError):
        Refused()
    assert Refused(3).a == 3


def test_equality_goes_by_class_and_fields_and_so_does_the_hash():
    @value_class()
    class Other:
        x: int
        y: int

    @value_class()
    class Same:
        x: int
        y: int

    assert Other(1, 2) == Other(1, 2) != Other(1, 3)
    assert Other(1, 2) != Same(1, 2)
    assert len({Other(1, 2), Other(1, 2), Other(2, 2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))  # its tags are a dict


def test_a_frozen_object_cannot_be_changed_and_another_can():
    @value_class(frozen=False)
    class Open:
        a: int

    for changed in ("x", "z"):
        with pytest.raises(AttributeError):
            setattr(Point(1), changed, 5)
    with pytest.raises(AttributeError):
        del Point(1).x
    row = Open(1)
    row.a = 2
    assert row == Open(2)
    with pytest.raises(AttributeError):
        row.b = 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(row)


def test_without_eq_an_object_equals_itself_alone():
    @value_class(frozen=False, eq=False)
    class Work:
        a: int

    one, two = Work(1), Work(1)
    assert one != two and one == one and len({one, two}) == 2


def test_replace_changes_some_fields_and_refuses_unknown_ones():
    before = Point(1, secret="t")
    assert replace(before, y=7) == Point(1, 7, {}, "t")
    assert before == Point(1, secret="t")
    with pytest.raises(TypeError):
        replace(before, z=1)


def test_objects_have_slots_and_match_by_position():
    assert not hasattr(Point(1), "__dict__")
    match Point(4, 5):
        case Point(x, y):
            assert (x, y) == (4, 5)
    assert Point.__doc__ == "Where." and Point.__module__ == __name__


def test_a_default_that_stands_before_a_field_without_one_is_refused():
    @value_class()
    class Wrong:
        a: int = 1
        b: int

    with pytest.raises(SyntaxError):
        Wrong(1, 2)


def test_an_object_is_no_bigger_than_a_dataclass():
    assert sys.getsizeof(Point(1)) <= sys.getsizeof(DataPoint(1))


class _Pair:
    first: int
    second: str = "x"

    def both(self) -> str:
        return f"{self.first}{self.second}"

    @property
    def length(self) -> int:
        return len(self.second)


def test_a_named_tuple_is_that_of_typing():
    body = {key: value for key, value in vars(_Pair).items() if not key.endswith("dict__")}
    body.pop("__weakref__", None)
    ours, theirs = (
        types.new_class("Pair", (base,), {}, lambda own: own.update(body))
        for base in (NamedTuple, typing.NamedTuple)
    )
    assert repr(ours(1)) == repr(theirs(1)) == "Pair(first=1, second='x')"
    assert ours(1) == theirs(1) == (1, "x") and ours(first=2).both() == theirs(2).both() == "2x"
    assert ours._fields == theirs._fields and ours._field_defaults == theirs._field_defaults
    assert ours(1)._replace(second="yy").length == 2 and ours._make((1, "y")).second == "y"
    assert ours.__module__ == theirs.__module__ == __name__
    with pytest.raises(TypeError, match="first"):
        ours()
    with pytest.raises(AttributeError):
        ours(1).first = 2
    assert not hasattr(ours(1), "__dict__")
