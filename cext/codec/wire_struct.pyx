"""The classes of messages: plain slots, which the codec reads and writes at their offset in the
object.

The offset of a slot comes from its member descriptor, once for each class. The codec uses an object
only after it has made it, or has checked that its type is exactly the class of its program.
Next: cext/codec/wire.pyx.
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #include <structmember.h>
    """

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member
    PyObject* PyDict_GetItemWithError(object d, object key) except? NULL
    Py_ssize_t PyDict_Size(object d) except -1
    int PyObject_RichCompareBool(object a, object b, int op) except -1
    int Py_EQ


cdef class Layout:
    """The offsets of the slots of one struct class, and the default of each."""
    def __cinit__(self, type cls, tuple names, tuple defaults):
        self.names, self.defaults = names, defaults
        self.unknown = offset_of(cls, "unknown")
        self.places = <Py_ssize_t*>calloc(len(names) + 1, sizeof(Py_ssize_t))
        if self.places == NULL:
            raise MemoryError
        for name in names:
            self.places[self.count] = offset_of(cls, name)
            self.count += 1

    def __dealloc__(self):
        free(self.places)


cdef Py_ssize_t offset_of(type cls, str name) except -1:
    member = cls.__dict__[name]
    if type(member).__name__ != "member_descriptor" or member.__objclass__ is not cls:
        raise TypeError(f"{cls.__name__}.{name} is not a slot")
    return (<PyMemberDescrObject*><PyObject*>member).d_member.offset


class Struct:
    """Base of all message classes: a slot for each field, and `unknown` for tagged fields that
    the schema does not name, as (tag, bytes) pairs in ascending order."""

    __slots__ = ()
    __hash__ = None
    layout = None

    def __init__(self, **fields):
        cdef Layout layout = self.layout
        cdef PyObject* me = <PyObject*>self
        cdef PyObject* given
        cdef Py_ssize_t i, taken = 0
        for i in range(layout.count):
            given = PyDict_GetItemWithError(fields, layout.names[i])
            if given != NULL:
                put(me, layout.places[i], <object>given)
                taken += 1
            else:
                put(me, layout.places[i], fresh(layout.defaults[i]))
        given = PyDict_GetItemWithError(fields, "unknown")
        put(me, layout.unknown, <object>given if given != NULL else ())
        if taken + (given != NULL) != PyDict_Size(fields):
            names = ", ".join(sorted(set(fields) - {*layout.names, "unknown"}))
            raise TypeError(f"{type(self).__name__} has no field {names}")

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        cdef Layout layout = self.layout
        cdef PyObject* a = <PyObject*>self
        cdef PyObject* b = <PyObject*>other
        cdef Py_ssize_t i
        for i in range(layout.count):
            if not PyObject_RichCompareBool(
                get(a, layout.places[i]), get(b, layout.places[i]), Py_EQ
            ):
                return False
        return list(self.unknown) == list(other.unknown)

    def __repr__(self):
        cdef Layout layout = self.layout
        parts = [f"{name}={getattr(self, name)!r}" for name in layout.names]
        if self.unknown:
            parts.append(f"unknown={self.unknown!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


def struct_class(str name, names, defaults):
    """Makes a class with these fields. For a default that is a list or a class, each object gets a
    new list or instance."""
    body = {"__slots__": (*names, "unknown"), "__module__": "barnabas.wire"}
    cls = type(name, (Struct,), body)
    cls.layout = Layout(cls, tuple(names), tuple(defaults))
    return cls
