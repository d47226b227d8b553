"""Python's carrier of a lane; the contract between reactor and lanes is in lane.pxd.

Next on the data path: cext/produce.pyx and cext/fetch.pyx, the two lanes there are.
"""

cdef class LaneHandle:
    """What a lane's module makes and the reactor takes; made by subclasses only."""

    def __init__(self):
        if self.lane == NULL:
            raise TypeError("a lane comes from its own module")

    cdef void bind(self, Waker* waker):
        pass
