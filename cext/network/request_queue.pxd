"""A request on its way through Python (see request_queue.pyx)."""
from barnabas.cext.network.network_state cimport Network, PyRequest

cdef object pending_request(object owner, Network* network, list listener_names, PyRequest* request)
cdef tuple peer_of(const void* peer)
