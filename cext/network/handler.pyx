"""Python's carrier of a native handler: each derives from NativeHandler and fills `handler`.

Next on the data path: cext/network/reactor.pyx calls the native handlers.
"""
from barnabas.cext.memory.waker cimport Waker


cdef class NativeHandler:

    def __cinit__(self, *_args, **_named):
        self.handler = NULL
        self.owner = None

    cdef void bind(self, Waker* waker):
        """Gives the handler its waker; a handler whose requests never wait ignores it."""
