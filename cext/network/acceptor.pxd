"""The acceptor thread of a network."""
from barnabas.cext.network.network_state cimport Network

cdef enum:
    LISTENER_LIMIT_NONE = 2147483647    # of connections, and of connections a second

# Until the network stops; closes the listeners at the end.
cdef void accept_loop(Network* network) noexcept nogil
