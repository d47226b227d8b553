/* What the network threads need of Linux and pthreads, with -errno for an answer. */
#ifndef BARNABAS_SOCKETS_H
#define BARNABAS_SOCKETS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef struct sockaddr_in6 net_peer;   /* holds an IPv4 address too: sin6_family says which */

static inline int net_epoll_new(void) { int fd = epoll_create1(EPOLL_CLOEXEC); return fd < 0 ? -errno : fd; }
static inline int net_epoll(int epoll_fd, int op, int fd, uint32_t events, void *tag) {
    struct epoll_event e;
    memset(&e, 0, sizeof e);
    e.events = events;
    e.data.ptr = tag;
    return epoll_ctl(epoll_fd, op, fd, &e) < 0 ? -errno : 0;
}

static inline int net_eventfd(void) { int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); return fd < 0 ? -errno : fd; }
static inline void net_ring(int fd) { uint64_t one = 1; ssize_t n = write(fd, &one, 8); (void)n; }
static inline void net_hush(int fd) { uint64_t count; ssize_t n = read(fd, &count, 8); (void)n; }

static inline int net_accept(int fd, net_peer *peer) {
    socklen_t size = sizeof *peer;
    memset(peer, 0, sizeof *peer);
    int made = accept4(fd, (struct sockaddr *)peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return made < 0 ? -errno : made;
}
static inline void net_send_buffer(int fd, int64_t bytes) {
    if (bytes > 0) {                            /* else the system's own */
        int size = bytes > 0x40000000 ? 0x40000000 : (int)bytes;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
}
static inline void net_prepare(int fd, int64_t send_buffer_bytes) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    net_send_buffer(fd, send_buffer_bytes);
}
static inline ssize_t net_recv(int fd, void *into, size_t n) {
    ssize_t got = recv(fd, into, n, 0);
    return got < 0 ? -errno : got;
}
static inline ssize_t net_send(int fd, const struct iovec *parts, int count, int more) {
    int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
    ssize_t sent;
    if (count == 1) {                           /* as most have, and cheaper */
        sent = send(fd, parts->iov_base, parts->iov_len, flags);
    } else {
        struct msghdr m;
        memset(&m, 0, sizeof m);
        m.msg_iov = (struct iovec *)parts;
        m.msg_iovlen = count;
        sent = sendmsg(fd, &m, flags);
    }
    return sent < 0 ? -errno : sent;
}
/* Bytes that the peer has no window for; those that are on their way are not among them. */
static inline int net_unsent(int fd) { int n = 0; return ioctl(fd, SIOCOUTQNSD, &n) < 0 ? 0 : n; }
static inline int net_unread(int fd) { int n = 0; return ioctl(fd, FIONREAD, &n) < 0 ? 0 : n; }

/* 16 bytes that stand for the peer's address: IPv4 as IPv6 writes it. */
static inline void net_address(const net_peer *p, uint8_t out[16]) {
    if (p->sin6_family == AF_INET6) {
        memcpy(out, &p->sin6_addr, 16);
        return;
    }
    memset(out, 0, 10);
    out[10] = out[11] = 0xff;
    memcpy(out + 12, &((const struct sockaddr_in *)p)->sin_addr, 4);
}
static inline int net_port(const net_peer *p) { return ntohs(p->sin6_port); }   /* same place in both */

static inline void net_own_thread(const char *name) {
    sigset_t all;
    sigfillset(&all);
    /* A thread's own faults: blocked they end the process without asking any handler. */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_setname_np(pthread_self(), name);
}

/* How often this thread has waited. What keeps it from running without that, other programs or a limit
   of processor time, is not counted. */
static inline int64_t net_waits(void) {
    struct rusage used;
    return getrusage(RUSAGE_THREAD, &used) < 0 ? 0 : used.ru_nvcsw;
}

/* A condition that waits by the monotonic clock. */
static inline int net_cond_init(pthread_cond_t *c) {
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
    return rc;
}
static inline int64_t net_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int net_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t until_ns) {
    struct timespec t = {until_ns / 1000000000, until_ns % 1000000000};
    return until_ns < 0 ? pthread_cond_wait(c, m) : pthread_cond_timedwait(c, m, &t);
}
#endif
