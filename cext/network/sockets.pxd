"""Sockets, epoll, eventfd and pthreads for the network threads (see sockets.h)."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from barnabas.cext.memory.mutex cimport pthread_mutex_t
from barnabas.cext.memory.sys cimport iovec

cdef extern from "sockets.h" nogil:
    ctypedef struct net_peer:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef unsigned long pthread_t
    union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLRDHUP
        EPOLLHUP
        EPOLLERR
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLL_CTL_MOD
    int epoll_wait(int epoll_fd, epoll_event* events, int count, int timeout_ms)
    int close(int fd)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)

    int net_epoll_new()
    int net_epoll(int epoll_fd, int op, int fd, uint32_t events, void* tag)
    int net_eventfd()
    void net_ring(int fd)
    void net_hush(int fd)
    int net_accept(int fd, net_peer* peer)
    void net_prepare(int fd, int64_t send_buffer_bytes)
    void net_send_buffer(int fd, int64_t size_bytes)
    ssize_t net_recv(int fd, void* into, size_t n)
    ssize_t net_send(int fd, const iovec* parts, int count, int more)
    int net_unread(int fd)
    int net_unsent(int fd)
    void net_address(const net_peer*, uint8_t* out)
    int net_port(const net_peer*)
    void net_own_thread(const char* name)
    int pthread_create(pthread_t*, const void* attributes, void* (*run)(void*) noexcept nogil, void*)
    int pthread_join(pthread_t, void** returned)
    int64_t net_waits()
    int net_cond_init(pthread_cond_t*)
    int64_t net_clock_ns()
    int net_cond_wait(pthread_cond_t*, pthread_mutex_t*, int64_t until_ns)
