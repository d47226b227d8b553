"""Python's carrier of a lane. Whoever makes a lane derives from LaneHandle and fills `lane`.

Next on the data path: cext/network/reactor.pyx calls the lanes.
"""
from barnabas.cext.memory.waker cimport Waker


cdef class LaneHandle:

    def __cinit__(self, *_args, **_named):
        self.lane = NULL
        self.owner = None

    cdef void bind(self, Waker* waker):
        """A lane that never parks needs no waker."""
