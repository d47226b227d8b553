"""The message codec: one interpreter that reads and writes any message of the protocol.

A Program describes one struct in one version; barnabas.wire.schema makes programs from the schema
text. No code is generated for a message.

    type             bytes                                     in flexible versions ("compact")
    bool, int8       1 (bool: 0 is false, all else true)       the same
    int16, uint16    2, big-endian, as all numbers here        the same
    int32, uint32    4                                         the same
    int64, float64   8                                         the same
    uuid             16                                        the same
    string           int16 length, UTF-8; -1 = null            uvarint length+1; 0 = null
    bytes, records   int32 length; -1 = null                   uvarint length+1; 0 = null
    array            int32 count; -1 = null                    uvarint count+1; 0 = null
    struct           its fields                                its fields, then the tagged section
    nullable struct  int8 (below 0 = null), then the struct    the same; in a tag 0 = null, 1
    tagged section   -                                         uvarint count, then each:
                                                               uvarint tag, uvarint size, value

Invariants: the reader reads bytes only through the checked cursor, and the cursor of a tagged field
ends at the field's size. Before it allocates memory for an array, it compares the count with the
bytes left, at the least size of an element. Tags ascend. The schema limits the nesting (DEPTH_MAX,
checked when a Program is made). A failure raises MalformedMessage (reading) or UnwritableMessage
(writing); both name message, version, field path and byte position. A refused message returns
nothing.

The reader and the writer keep the path of the current field, so that an error can name it. This
costs two stores for each field; a try block at every level would cost more in the common case.
Next: broker/wire/schema.py.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i8, cursor_i16, cursor_i32, cursor_i64, cursor_left, cursor_of, cursor_take,
    cursor_uvarint,
)
from barnabas.cext.codec.endian cimport be16_store, be32_store, be64_store
from barnabas.cext.codec.varint cimport uvarint_size, uvarint_write
from barnabas.cext.codec.wire_struct cimport Layout, fresh, get, offset_of, put

cdef extern from "Python.h":
    object PyType_GenericAlloc(type cls, Py_ssize_t nitems)
    object PyUnicode_DecodeUTF8(const char* s, Py_ssize_t size, const char* errors)
    const char* PyUnicode_AsUTF8AndSize(object s, Py_ssize_t* size) except NULL
    object PyMemoryView_FromObject(object o)
    object PyLong_FromLong(long v)
    object PyLong_FromLongLong(long long v)
    long long PyLong_AsLongLong(object v) except? -1
    double PyFloat_AsDouble(object v) except? -1
    int PyObject_RichCompareBool(object a, object b, int op) except -1
    int Py_EQ

cdef enum Kind:
    BOOL
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    FLOAT64
    UUID
    STRING
    BYTES
    RECORDS
    STRUCT

KINDS = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32,
    "uint32": UINT32, "int64": INT64, "float64": FLOAT64, "uuid": UUID, "string": STRING,
    "bytes": BYTES, "records": RECORDS, "{}": STRUCT,
}

cdef enum:
    DEPTH_MAX = 16            # nested structs; the schemas have at most six
    STRING_MAX = 0x7FFF       # bytes; the compact form keeps the old form's limit, as in Kafka
    FIRST_ROOM = 512          # bytes of a writer's first buffer

cdef Py_ssize_t WIDTH[9]
WIDTH[:] = [1, 1, 2, 2, 4, 4, 8, 8, 16]


class MalformedMessage(ValueError):
    """The bytes are not a message of the named type and version."""


class UnwritableMessage(ValueError):
    """The named version of the message cannot carry the values of the object."""


# ---------------------------------------------------------------- programs

cdef struct Op:
    int kind
    bint array
    bint nullable
    bint compact
    int64_t tag               # -1: not a tagged field
    Py_ssize_t offset         # of the slot
    Py_ssize_t element_min    # bytes that one element needs at least
    PyObject* name            # these four are kept alive by Program.keep
    PyObject* sub             # the Program of a struct
    PyObject* default         # the argument of `fresh`
    PyObject* same            # the value that a missing field means

cdef struct Absent:
    bint ignorable
    Py_ssize_t offset
    PyObject* name
    PyObject* default
    PyObject* same

cdef struct Step:
    Op* op                    # NULL inside the tagged section
    Py_ssize_t index          # -1 outside an array


cdef class Program:
    """One struct in one version: reads bytes into objects of `cls`, and writes such objects."""
    cdef Op* ops
    cdef Absent* absent
    cdef int count, plain_count, absent_count, depth
    cdef bint flexible
    cdef Py_ssize_t unknown, size_min
    cdef list keep
    cdef readonly type cls
    cdef readonly str title

    def __cinit__(self, str title, type cls, fields, absent, bint flexible):
        """fields: (name, kind, array, nullable, tag or -1, compact, default, same, sub), the
        plain ones first, then by tag; absent: (name, ignorable, default, same)."""
        fields, absent = list(fields), list(absent)
        self.title, self.cls, self.flexible = title, cls, flexible
        self.keep = [fields, absent]
        self.unknown = (<Layout>cls.layout).unknown
        self.ops = <Op*>calloc(len(fields) + 1, sizeof(Op))
        self.absent = <Absent*>calloc(len(absent) + 1, sizeof(Absent))
        if self.ops == NULL or self.absent == NULL:
            raise MemoryError
        self.depth = 1
        self.size_min = 1 if flexible else 0
        cdef int64_t last_tag = -1
        for field in fields:
            self.add(field)
            tag = self.ops[self.count - 1].tag
            if tag < last_tag or (tag >= 0 and (tag == last_tag or not flexible)):
                raise ValueError(f"{title}: {field[0]} out of order")
            last_tag = tag
        if self.depth > DEPTH_MAX:
            raise ValueError(f"{title}: more than {DEPTH_MAX} structs inside each other")
        cdef Absent* a
        for field in absent:
            name, ignorable, default, same = field
            a = &self.absent[self.absent_count]
            a.ignorable, a.offset = ignorable, offset_of(cls, name)
            a.name, a.default, a.same = <PyObject*>name, <PyObject*>default, <PyObject*>same
            self.absent_count += 1

    cdef int add(self, tuple field) except -1:
        name, kind, array, nullable, tag, compact, default, same, sub = field
        cdef Op* op = &self.ops[self.count]
        op.kind, op.array, op.nullable, op.compact = kind, array, nullable, compact
        op.tag, op.offset = tag, offset_of(self.cls, name)
        op.name, op.sub = <PyObject*>name, <PyObject*>sub
        op.default, op.same = <PyObject*>default, <PyObject*>same
        if op.kind == STRUCT:
            op.element_min = (<Program?>sub).size_min
            self.depth = max(self.depth, 1 + (<Program>sub).depth)
        elif op.kind <= UUID:
            op.element_min = WIDTH[op.kind]
        else:
            op.element_min = 1 if op.compact else 2 if op.kind == STRING else 4
        op.element_min = max(op.element_min, 1)
        self.count += 1
        if op.tag < 0:
            self.plain_count += 1
            if op.array:
                self.size_min += 1 if op.compact else 4
            else:
                self.size_min += 1 if op.kind == STRUCT and op.nullable else op.element_min
        return 0

    def __dealloc__(self):
        free(self.ops)
        free(self.absent)

    def decode(self, data, Py_ssize_t offset=0):
        """Returns (object, offset after it); bytes after the message are allowed. Raises
        MalformedMessage."""
        return self.run(data, offset, False)

    def decode_whole(self, data, Py_ssize_t offset=0):
        """Returns the object of a message that ends exactly at the end of `data`. Raises
        MalformedMessage."""
        return self.run(data, offset, True)[0]

    cdef tuple run(self, object data, Py_ssize_t offset, bint whole):
        cdef Py_buffer buffer
        cdef Reader r
        cdef Py_ssize_t end
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        r.view = NULL
        try:
            if not 0 <= offset <= buffer.len:
                raise ValueError(f"offset {offset} outside {buffer.len} bytes")
            r.start = <const uint8_t*>buffer.buf
            r.c = cursor_of(r.start + offset, buffer.len - offset)
            r.at, r.source, r.title, r.depth = r.c.p, <PyObject*>data, <PyObject*>self.title, 0
            try:
                message = read_struct(&r, self)
            except UnicodeDecodeError as error:
                raise MalformedMessage(where(&r) + f"not UTF-8 ({error.reason})") from None
            end = r.c.p - r.start
            if whole and end != buffer.len:
                more = f"but {buffer.len - end} more bytes follow"
                raise MalformedMessage(f"{self.title} ends at byte {end}, {more}")
            return message, end
        finally:
            Py_XDECREF(r.view)
            PyBuffer_Release(&buffer)

    def encode(self, message) -> bytes:
        """Returns the bytes of the message. Raises UnwritableMessage."""
        return write_messages(False, self, message, None, None)


def encode(Program header_program not None, header, Program program not None, message,
           bint framed=False):
    """Returns header and message as bytes; with `framed` their int32 size comes first. Raises
    UnwritableMessage."""
    return write_messages(framed, header_program, header, program, message)


# ---------------------------------------------------------------- reading

cdef struct Reader:
    Cursor c
    const uint8_t* start
    const uint8_t* at         # where the current field begins
    PyObject* source          # borrowed: the edge holds it
    PyObject* view            # memoryview of source, made for the first records field; owned
    PyObject* title
    int depth
    Step path[DEPTH_MAX]


cdef str path_text(Step* path, int depth):
    parts = []
    for i in range(depth):
        name = "<tagged fields>" if path[i].op == NULL else <str>path[i].op.name
        parts.append(name if path[i].index < 0 else f"{name}[{path[i].index}]")
    return ".".join(parts)


cdef str where(Reader* r):
    path = path_text(r.path, r.depth)
    return f"{<str>r.title}: {path} at byte {r.at - r.start}: "


cdef int fail(Reader* r, str why) except -1:
    raise MalformedMessage(where(r) + why)


cdef int fail_short(Reader* r) except -1:
    raise MalformedMessage(where(r) + "ends early")


cdef inline uint64_t read_uvarint(Reader* r) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t value
    r.at = r.c.p
    value = cursor_uvarint(&r.c, 5)
    if r.c.bad:
        fail(r, "ends early, or its varint is too long")
    return value


cdef inline Py_ssize_t read_length(Reader* r, Op* op, bint short) except -2:
    """Reads a length or count; -1: null, which only a nullable field may be."""
    cdef Py_ssize_t n
    if op.compact:
        n = <Py_ssize_t>read_uvarint(r) - 1
    elif short:
        n = cursor_i16(&r.c)
    else:
        n = cursor_i32(&r.c)
    if r.c.bad:
        fail_short(r)
    if n < -1:
        fail(r, f"negative length {n}")
    return n


cdef inline object read_bytes(Reader* r, Op* op, bint nullable):
    cdef Py_ssize_t n = read_length(r, op, op.kind == STRING)
    cdef const uint8_t* p
    if n < 0:
        if not nullable:
            fail(r, "null, which this version does not allow")
        return None
    if op.kind == STRING and n > STRING_MAX:
        fail(r, f"string of {n} bytes, at most {STRING_MAX} are allowed")
    p = cursor_take(&r.c, n)
    if p == NULL:
        fail(r, f"{n} bytes announced, more than are left")
    if op.kind == STRING:
        return PyUnicode_DecodeUTF8(<const char*>p, n, NULL)
    if op.kind == BYTES:
        return PyBytes_FromStringAndSize(<const char*>p, n)
    if r.view == NULL:
        view = PyMemoryView_FromObject(<object>r.source)
        if view.format != "B":
            view = view.cast("B")
        Py_INCREF(view)
        r.view = <PyObject*>view
    return (<object>r.view)[p - r.start:p - r.start + n]


cdef object read_one(Reader* r, Op* op, bint nullable):
    """Reads one value, or one element of an array (then nullable is False)."""
    cdef int kind = op.kind
    cdef int64_t number
    cdef const uint8_t* p
    r.at = r.c.p
    if kind == INT32:
        number = cursor_i32(&r.c)
    elif kind >= STRING:
        if kind == STRUCT:
            return read_struct(r, <Program>op.sub)
        return read_bytes(r, op, nullable)
    elif kind == INT16:
        number = cursor_i16(&r.c)
    elif kind == INT64:
        number = cursor_i64(&r.c)
    elif kind == INT8:
        number = cursor_i8(&r.c)
    elif kind == BOOL:
        number = cursor_i8(&r.c)
        if r.c.bad:
            fail_short(r)
        return number != 0
    elif kind == UUID:
        p = cursor_take(&r.c, 16)
        if p == NULL:
            fail_short(r)
        return PyBytes_FromStringAndSize(<const char*>p, 16)
    elif kind == UINT16:
        number = <uint16_t>cursor_i16(&r.c)
    elif kind == UINT32:
        number = <uint32_t>cursor_i32(&r.c)
    else:
        number = cursor_i64(&r.c)
        if r.c.bad:
            fail_short(r)
        return (<double*>&number)[0]
    if r.c.bad:
        fail_short(r)
    return PyLong_FromLongLong(number)


cdef object read_value(Reader* r, Op* op, Step* step):
    cdef Py_ssize_t count, i
    cdef list values
    cdef object value
    if op.array:
        r.at = r.c.p
        count = read_length(r, op, False)
        if count < 0:
            if not op.nullable:
                fail(r, "null, which this version does not allow")
            return None
        if count > cursor_left(&r.c) // op.element_min:
            fail(r, f"{count} elements announced, more than the bytes left can hold")
        values = PyList_New(count)
        for i in range(count):
            step.index = i
            value = read_one(r, op, False)
            Py_INCREF(value)
            PyList_SET_ITEM(values, i, value)
        step.index = -1
        return values
    if op.kind == STRUCT and op.nullable:
        r.at = r.c.p
        if (cursor_i8(&r.c) < 0) if op.tag < 0 else (cursor_uvarint(&r.c, 5) == 0):
            return None
        if r.c.bad:
            fail_short(r)
    return read_one(r, op, op.nullable)


cdef object read_struct(Reader* r, Program g):
    cdef object message = PyType_GenericAlloc(g.cls, 0)
    cdef PyObject* o = <PyObject*>message
    cdef Step* step = &r.path[r.depth]
    cdef int i
    r.depth += 1
    step.index = -1
    for i in range(g.plain_count):
        step.op = &g.ops[i]
        put(o, g.ops[i].offset, read_value(r, step.op, step))
    for i in range(g.absent_count):
        put(o, g.absent[i].offset, fresh(<object>g.absent[i].default))
    put(o, g.unknown, ())
    if g.flexible:
        step.op = NULL
        read_tagged(r, g, o, step)
    r.depth -= 1
    return message


cdef int read_tagged(Reader* r, Program g, PyObject* o, Step* step) except -1:
    cdef uint64_t count = read_uvarint(r)
    cdef uint64_t size
    cdef int64_t tag, last = -1
    cdef int next_op = g.plain_count
    cdef const uint8_t* end
    cdef const uint8_t* stop
    cdef const uint8_t* p
    cdef list unknown = None
    if count > <uint64_t>cursor_left(&r.c) // 2:
        fail(r, f"{count} tagged fields announced, more than the bytes left can hold")
    while count > 0:
        count -= 1
        step.op = NULL
        tag = <int64_t>read_uvarint(r)
        if tag <= last:
            fail(r, f"tag {tag} after tag {last}: tags must ascend")
        last = tag
        size = read_uvarint(r)
        if size > <uint64_t>cursor_left(&r.c):
            fail(r, f"{size} bytes announced for tag {tag}, more than are left")
        while next_op < g.count and g.ops[next_op].tag < tag:
            put(o, g.ops[next_op].offset, fresh(<object>g.ops[next_op].default))
            next_op += 1
        if next_op < g.count and g.ops[next_op].tag == tag:
            end, stop = r.c.end, r.c.p + size
            r.c.end = stop
            step.op = &g.ops[next_op]
            put(o, step.op.offset, read_value(r, step.op, step))
            if r.c.p != stop:
                fail(r, f"{stop - r.c.p} bytes left over in tag {tag}")
            r.c.end = end
            next_op += 1
        else:
            p = cursor_take(&r.c, size)
            if unknown is None:
                unknown = []
                put(o, g.unknown, unknown)
            unknown.append((tag, PyBytes_FromStringAndSize(<const char*>p, size)))
    while next_op < g.count:
        put(o, g.ops[next_op].offset, fresh(<object>g.ops[next_op].default))
        next_op += 1
    return 0


# ---------------------------------------------------------------- writing

cdef struct Writer:
    uint8_t* buffer
    Py_ssize_t size, room
    int depth
    Step path[DEPTH_MAX]
    PyObject* absent          # the name of a field that this version lacks, if that is the error


cdef bytes write_messages(bint framed, Program first, object message, Program second, object body):
    """Writes one or two messages, one after the other, after their size when framed."""
    cdef Writer w
    cdef Program g = first
    w.buffer = <uint8_t*>malloc(FIRST_ROOM)
    w.size, w.room, w.depth, w.absent = 4 if framed else 0, FIRST_ROOM, 0, NULL
    if w.buffer == NULL:
        raise MemoryError
    try:
        try:
            write_struct(&w, first, message)
            if second is not None:
                g = second
                write_struct(&w, second, body)
            if w.size > INT32_MAX:
                raise ValueError(f"{w.size} bytes, more than a frame can carry")
        except (AttributeError, TypeError, ValueError, OverflowError, BufferError) as error:
            path = path_text(w.path, w.depth)
            if w.absent != NULL:
                path = path.rpartition(".")[0]
                path = f"{path}.{<str>w.absent}" if path else <str>w.absent
            text = f"{g.title}: {path} at byte {w.size}: {error}"
            raise UnwritableMessage(text) from error
        if framed:
            be32_store(w.buffer, <uint32_t>(w.size - 4))
        return PyBytes_FromStringAndSize(<char*>w.buffer, w.size)
    finally:
        free(w.buffer)


cdef inline uint8_t* take(Writer* w, Py_ssize_t n) except NULL:
    """Returns memory for n more bytes, which count as written. The pointer is valid until the next
    call."""
    cdef uint8_t* grown
    if n > w.room - w.size:
        grown = <uint8_t*>realloc(w.buffer, (w.size + n) * 2)
        if grown == NULL:
            raise MemoryError
        w.buffer = grown
        w.room = (w.size + n) * 2
    w.size += n
    return w.buffer + w.size - n


cdef inline int write_uvarint(Writer* w, uint64_t value) except -1:
    uvarint_write(take(w, uvarint_size(value)), value)
    return 0


cdef inline int write_length(Writer* w, Op* op, Py_ssize_t n, bint short) except -1:
    if short and n > STRING_MAX:
        raise ValueError(f"string of {n} bytes, at most {STRING_MAX} are allowed")
    if n > INT32_MAX:
        raise ValueError(f"length {n} is beyond int32")
    if op.compact:
        write_uvarint(w, <uint64_t>(n + 1))
    elif short:
        be16_store(take(w, 2), <uint16_t>n)
    else:
        be32_store(take(w, 4), <uint32_t>n)
    return 0


cdef int write_null(Writer* w, Op* op, bint nullable, bint short) except -1:
    if not nullable:
        raise ValueError("null, which this version does not allow")
    return write_length(w, op, -1, short)


cdef inline int write_number(Writer* w, int kind, object value) except -1:
    cdef long long n = PyLong_AsLongLong(value)
    if kind == INT32:
        if n == <int32_t>n:
            be32_store(take(w, 4), <uint32_t>n)
            return 0
    elif kind == INT64:
        be64_store(take(w, 8), <uint64_t>n)
        return 0
    elif kind == INT16:
        if n == <int16_t>n:
            be16_store(take(w, 2), <uint16_t>n)
            return 0
    elif kind == INT8:
        if n == <int8_t>n:
            take(w, 1)[0] = <uint8_t>n
            return 0
    elif kind == UINT16:
        if n == <uint16_t>n:
            be16_store(take(w, 2), <uint16_t>n)
            return 0
    elif n == <uint32_t>n:
        be32_store(take(w, 4), <uint32_t>n)
        return 0
    names = {INT8: "int8", INT16: "int16", UINT16: "uint16", INT32: "int32", UINT32: "uint32"}
    raise ValueError(f"{value} is out of range for {names[kind]}")


cdef int write_blob(Writer* w, Op* op, object value, bint nullable) except -1:
    cdef Py_buffer buffer
    if value is None:
        return write_null(w, op, nullable, False)
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    try:
        write_length(w, op, buffer.len, False)
        if buffer.len > 0:
            memcpy(take(w, buffer.len), buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)
    return 0


cdef int write_one(Writer* w, Op* op, object value, bint nullable) except -1:
    cdef int kind = op.kind
    cdef Py_ssize_t n = 0
    cdef const char* s
    cdef double d
    if kind == STRUCT:
        return write_struct(w, <Program>op.sub, value)
    if kind == STRING:
        if value is None:
            return write_null(w, op, nullable, True)
        s = PyUnicode_AsUTF8AndSize(value, &n)
        write_length(w, op, n, True)
        if n > 0:
            memcpy(take(w, n), s, n)
        return 0
    if kind >= BYTES:
        return write_blob(w, op, value, nullable)
    if kind == BOOL:
        if value is not True and value is not False:
            raise TypeError(f"a bool is wanted, not {value!r}")
        take(w, 1)[0] = 1 if value is True else 0
        return 0
    if kind == FLOAT64:
        d = PyFloat_AsDouble(value)
        be64_store(take(w, 8), (<uint64_t*>&d)[0])
        return 0
    if kind == UUID:
        if type(value) is not bytes or PyBytes_GET_SIZE(value) != 16:
            raise TypeError(f"a uuid is 16 bytes, not {value!r}")
        memcpy(take(w, 16), PyBytes_AS_STRING(value), 16)
        return 0
    return write_number(w, kind, value)


cdef int write_value(Writer* w, Op* op, object value, Step* step) except -1:
    cdef Py_ssize_t count, i
    cdef list values
    cdef object element
    if op.array:
        if value is None:
            return write_null(w, op, op.nullable, False)
        if type(value) is not list and type(value) is not tuple:
            raise TypeError(f"a list is wanted, not {type(value).__name__}")
        values = value if type(value) is list else list(value)
        count = PyList_GET_SIZE(values)
        write_length(w, op, count, False)
        for i in range(count):
            step.index = i
            if i >= PyList_GET_SIZE(values):  # an element's own __index__ may have shortened it
                raise ValueError("the list changed while it was written")
            element = <object>PyList_GET_ITEM(values, i)
            write_one(w, op, element, False)
        step.index = -1
        return 0
    if op.kind == STRUCT and op.nullable:
        take(w, 1)[0] = 1 if value is not None else 255 if op.tag < 0 else 0
        if value is None:
            return 0
    return write_one(w, op, value, op.nullable)


cdef inline bint is_default(object value, PyObject* default, PyObject* same) except -1:
    if <PyObject*>value == default:
        return True
    return PyObject_RichCompareBool(value, <object>same, Py_EQ)


cdef int write_struct(Writer* w, Program g, object message) except -1:
    cdef PyObject* o = <PyObject*>message
    cdef Step* step
    cdef int i
    if type(message) is not g.cls:
        raise TypeError(f"{g.cls.__name__} is wanted, not {type(message).__name__}")
    step = &w.path[w.depth]
    w.depth += 1
    step.index = -1
    for i in range(g.plain_count):
        step.op = &g.ops[i]
        write_value(w, step.op, get(o, step.op.offset), step)
    step.op = NULL
    for i in range(g.absent_count):
        if g.absent[i].ignorable:
            continue
        w.absent = g.absent[i].name
        if not is_default(get(o, g.absent[i].offset), g.absent[i].default, g.absent[i].same):
            raise ValueError("this version has no such field, and its value is not the default")
    w.absent = NULL
    unknown = get(o, g.unknown)
    if g.flexible:
        write_tagged(w, g, o, step, unknown)
    elif len(unknown) > 0:
        raise ValueError("this version has no tagged fields")
    w.depth -= 1
    return 0


cdef int write_tagged(Writer* w, Program g, PyObject* o, Step* step, object unknown) except -1:
    cdef Py_ssize_t count = len(unknown)
    cdef int64_t last = -1
    cdef int64_t tag
    cdef int i, next_op = g.plain_count
    cdef bytes data
    for i in range(g.plain_count, g.count):
        if not is_default(get(o, g.ops[i].offset), g.ops[i].default, g.ops[i].same):
            count += 1
    write_uvarint(w, count)
    if count == 0:
        return 0
    for tag, data in unknown:
        if not last < tag <= 0xFFFFFFFF:
            raise ValueError(f"unknown tag {tag} after tag {last}: tags must ascend")
        last = tag
        next_op = write_known(w, g, o, step, next_op, tag)
        if next_op < g.count and g.ops[next_op].tag == tag:
            raise ValueError(f"tag {tag} is {<str>g.ops[next_op].name}, not unknown")
        step.op = NULL
        write_uvarint(w, <uint64_t>tag)
        write_uvarint(w, <uint64_t>PyBytes_GET_SIZE(data))
        if data:
            memcpy(take(w, PyBytes_GET_SIZE(data)), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    write_known(w, g, o, step, next_op, INT64_MAX)
    return 0


cdef int write_known(Writer* w, Program g, PyObject* o, Step* step, int at, int64_t below) except -1:
    """Writes the known tagged fields from op `at` on with a tag below `below`. Returns the op at
    which it stopped.

    The size comes before the value, and its own length depends on the value: so this function
    writes the value first and then moves it by the length of tag and size."""
    cdef Op* op
    cdef Py_ssize_t mark, size, head
    cdef uint8_t* p
    while at < g.count and g.ops[at].tag < below:
        op = &g.ops[at]
        at += 1
        value = get(o, op.offset)
        if is_default(value, op.default, op.same):
            continue
        step.op = op
        mark = w.size
        write_value(w, op, value, step)
        size = w.size - mark
        head = uvarint_size(<uint64_t>op.tag) + uvarint_size(<uint64_t>size)
        take(w, head)
        p = w.buffer + mark
        memmove(p + head, p, size)
        uvarint_write(uvarint_write(p, <uint64_t>op.tag), <uint64_t>size)
    return at
