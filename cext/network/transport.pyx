"""A Python object that carries a transport: cext/network/tls.pyx derives from it and calls
declare().

Next on the data path: cext/network/connection.pyx calls the functions of the table.
"""


cdef class Transport:

    def __cinit__(self, *_args, **_named):
        self.calls = NULL
        self.context = NULL

    cdef void declare(self, const TransportCalls* calls, void* context):
        """Sets the functions, and the context that open() gets."""
        self.calls, self.context = calls, context
