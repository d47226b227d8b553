"""Python objects that carry native handlers (they derive from NativeHandler and call declare()) and
the permissions (cext/network/permissions.pyx).

Next on the data path: cext/network/reactor.pyx puts the native handlers into its table.
"""
from barnabas.cext.memory.waker cimport Waker


cdef class NativeHandler:

    def __cinit__(self, *_args, **_named):
        self.handler.context = NULL
        self.apis = ()
        self.owner = None

    cdef void declare(
        self, tuple apis, void* context, HandleRequest handle, ResumeRequest resume,
        AbandonRequest abandon,
    ):
        """Declares which APIs these functions answer: (API key, first version, last version) each."""
        self.apis = apis
        self.handler.context = context
        self.handler.handle, self.handler.resume, self.handler.abandon = handle, resume, abandon

    cdef void bind(self, Waker* waker):
        """Passes the waker to the handler; a handler whose requests never wait ignores it."""


cdef class PermissionTable:

    def __cinit__(self, *_args, **_named):
        self.permissions = NULL


cdef class SensorCarrier:

    def __cinit__(self, *_args, **_named):
        self.sensor = NULL


cdef int handler_resumes_nothing(
    void* context, Request* request, Response* out, Parked* parked, bint expired,
) noexcept nogil:
    return HANDLER_CLOSE

cdef void handler_abandons_nothing(void* context, Parked* parked) noexcept nogil:
    pass
