"""Slots of message objects, which the codec reads and writes at their offset in the object."""
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF


cdef class Layout:
    cdef readonly tuple names
    cdef readonly tuple defaults
    cdef Py_ssize_t count
    cdef Py_ssize_t* places      # for each name, its slot's offset in the object, in bytes
    cdef Py_ssize_t unknown


cdef Py_ssize_t offset_of(type cls, str name) except -1


cdef inline PyObject** slot_at(PyObject* o, Py_ssize_t offset):
    return <PyObject**>(<char*>o + offset)


cdef inline void put(PyObject* o, Py_ssize_t offset, object value):
    cdef PyObject** slot = slot_at(o, offset)
    cdef PyObject* old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject*>value
    Py_XDECREF(old)


cdef inline object get(PyObject* o, Py_ssize_t offset):
    cdef PyObject* value = slot_at(o, offset)[0]
    if value == NULL:
        raise ValueError("the field was deleted")
    return <object>value


cdef inline object fresh(object default):
    """Returns a default value for one object: a new list or struct, or the shared value itself."""
    if type(default) is list:
        return []
    if isinstance(default, type):
        return default()
    return default
