"""`@value_class`: what `dataclasses` does for the broker's plain classes, at a tenth of its price.

A `dataclass` compiles six functions for each class while it is imported, and brings `inspect`,
`ast` and `tokenize` along: with the thirty classes of a broker that was a tenth of its start. Here
`__init__` is compiled when the first object is made, and the others are shared. The rest is as
there: fields are the annotated names in their order, `==` goes by class and fields, `repr` tells
them. Classes have slots; those that are frozen (unless told otherwise) cannot be changed and have
a hash. Type checkers know all that by `dataclass_transform`.

`NamedTuple` is that of `typing`, without its check of each field's type, which takes longer than
the making of the class (350 us a class with five fields; without it 140).
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

# From 3.14 on the fields of a class body are not in its namespace; `typing` knows where they are.
if TYPE_CHECKING or sys.version_info >= (3, 14):
    from typing import NamedTuple as NamedTuple
else:
    _OF_THE_BODY = ("__annotations__", "__module__", "__dict__", "__slots__")

    class _NamedTuples(type):
        def __new__(cls, name, bases, own):  # type: ignore[no-untyped-def]
            fields = own.get("__annotations__", {})
            defaults = [own[field] for field in fields if field in own]
            made = namedtuple(name, fields, defaults=defaults, module=own["__module__"])
            made.__annotations__ = fields
            for key, value in own.items():
                if key not in fields and key not in _OF_THE_BODY:
                    setattr(made, key, value)
            return made

    NamedTuple = type.__new__(_NamedTuples, "NamedTuple", (), {})

C = TypeVar("C", bound=type)
V = TypeVar("V")

_NO_DEFAULT = object()


class _Field:
    __slots__ = ("default", "default_factory", "repr")

    def __init__(
        self,
        default: object = _NO_DEFAULT,
        default_factory: Callable[[], object] | None = None,
        repr: bool = True,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.repr = repr


def field(
    *,
    default: Any = _NO_DEFAULT,
    default_factory: Callable[[], Any] | None = None,
    repr: bool = True,
) -> Any:
    """A field with more to say than its default: a default that is made anew for each object, or
    that `repr` leaves it out."""
    return _Field(default, default_factory, repr)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(*, frozen: bool = True, eq: bool = True) -> Callable[[C], C]:
    """The decorator. Not frozen, a class can be changed and has no hash; without `eq` an object
    is equal to itself alone and its hash is its identity."""

    def made(cls: C) -> C:
        return _made(cls, frozen, eq)

    return made


def replace(value: V, **changes: Any) -> V:
    """A value of the same class with some fields changed."""
    names: tuple[str, ...] = getattr(type(value), "__match_args__")  # noqa: B009
    return type(value)(**{name: getattr(value, name) for name in names} | changes)


def _made(cls: Any, frozen: bool, eq: bool) -> Any:
    own = dict(cls.__dict__)
    own.pop("__dict__", None)
    own.pop("__weakref__", None)
    names = tuple(cls.__annotations__)
    fields = {}
    for name in names:
        default = own.pop(name, _NO_DEFAULT)
        fields[name] = default if isinstance(default, _Field) else _Field(default)
    own |= {"__slots__": names, "__match_args__": names, "__qualname__": cls.__qualname__}
    own.setdefault("__repr__", _repr([name for name in names if fields[name].repr]))
    if eq:
        read = attrgetter(*names)
        own.setdefault("__eq__", _eq(read))
        own.setdefault("__hash__", _hash(read) if frozen else None)
    if frozen:
        own |= {"__setattr__": _refuse, "__delattr__": _refuse}
    own["__init__"] = _first_init(fields)
    return type(cls)(cls.__name__, cls.__bases__, own)


def _first_init(fields: dict[str, _Field]) -> Callable[..., None]:
    """The `__init__` of a class of which there is no object yet. Two threads that make the first
    two at once compile it twice, which does no harm."""

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        cls = type(self)
        cls.__init__ = _compiled_init(cls, fields)
        cls.__init__(self, *args, **named)

    return __init__


def _compiled_init(cls: Any, fields: dict[str, _Field]) -> Callable[..., None]:
    """Sets the slots by their descriptors, which a frozen class does not stop."""
    known: dict[str, object] = {"_absent": _NO_DEFAULT}
    words, lines = ["self"], []
    for name, row in fields.items():
        known[f"_set_{name}"] = cls.__dict__[name].__set__
        value = name
        if row.default_factory is not None:
            known[f"_make_{name}"] = row.default_factory
            value = f"_make_{name}() if {name} is _absent else {name}"
            words.append(f"{name}=_absent")
        elif row.default is not _NO_DEFAULT:
            known[f"_default_{name}"] = row.default
            words.append(f"{name}=_default_{name}")
        else:
            words.append(name)
        lines.append(f" _set_{name}(self, {value})\n")
    source = f"def __init__({', '.join(words)}):\n{''.join(lines) or ' pass'}"
    exec(source, known)  # noqa: S102 - nothing is in it but the names of the class's own fields
    init: Any = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _eq(read: Callable[[object], object]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:
        return read(self) == read(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _hash(read: Callable[[object], object]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:
        return hash(read(self))

    return __hash__


def _repr(names: list[str]) -> Callable[[object], str]:
    def __repr__(self: object) -> str:
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({told})"

    return __repr__


def _refuse(self: object, name: str, *value: object) -> None:
    raise AttributeError(f"{type(self).__qualname__}.{name} cannot be changed")
