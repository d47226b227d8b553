"""A request on its way through Python (see pylane.pyx)."""
from barnabas.cext.network cimport Network, PyRequest

cdef object pending_request(object owner, Network* network, list listener_names, PyRequest* request)
cdef tuple peer_of(const void* peer)
