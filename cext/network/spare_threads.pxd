"""Spare network threads (spare_threads.pyx)."""
from barnabas.cext.network.network_state cimport Network, NetThread

# Moves the thread's connections of CHAIN_MOVING to other threads.
cdef void connections_move(NetThread* thread) noexcept nogil
# Waits for the spare threads to end, after the network has begun to stop.
cdef void spare_threads_join(Network* network) noexcept nogil
