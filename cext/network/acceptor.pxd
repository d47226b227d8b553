"""The acceptor thread of a network."""
from barnabas.cext.network.network_state cimport Network

cdef enum:
    LISTENER_LIMIT_NONE = 2147483647    # no limit of connections, or of connections a second

# Runs the acceptor until the network stops, then closes the listeners.
cdef void accept_loop(Network* network) noexcept nogil
