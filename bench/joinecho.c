/* JoinGroup and SyncGroup without a broker: what the packets of joinload.c take.
 *
 *     cc -O2 -o joinecho bench/joinecho.c
 *     joinecho MEMBERS
 *
 * One thread with epoll. When as many have asked to join, all are told that they have, the first that
 * it leads; when it has handed its assignment in, each is given one byte. No state beyond that, no
 * check, no log: one recv and one send a request. Prints its port and serves one group after another. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { JOIN = 11, HEARTBEAT = 12, SYNC = 14, HEADER = 12, PEERS_MAX = 4096, IN_ROOM = 1 << 17, OUT_ROOM = 1 << 20 };

typedef struct {
    int fd;
    size_t in_bytes;
    uint8_t correlation[4], in[IN_ROOM];
} Peer;

static Peer *joined[PEERS_MAX], *waiting[PEERS_MAX];
static int member_count, joined_count, waiting_count, synced_count, assigned;
static uint8_t out[OUT_ROOM];
static size_t out_bytes;

static void put16(int v) { out[out_bytes++] = v >> 8; out[out_bytes++] = v; }
static void put32(int v) { put16(v >> 16); put16(v); }
static void text(const char *s) {
    put16(strlen(s));
    memcpy(out + out_bytes, s, strlen(s));
    out_bytes += strlen(s);
}
static void member_id(const Peer *p) {
    char id[64];
    snprintf(id, sizeof id, "bench-00000000-0000-4000-8000-%012d", p->fd);
    text(id);
}
static void begin(const Peer *p) { /* correlation id, throttle time, error */
    out_bytes = 4;
    memcpy(out + out_bytes, p->correlation, 4);
    out_bytes += 4;
    put32(0);
    put16(0);
}
static void send_out(const Peer *p) {
    uint32_t size = htonl(out_bytes - 4);
    memcpy(out, &size, 4);
    for (size_t sent = 0; sent < out_bytes;) {
        ssize_t got = send(p->fd, out + sent, out_bytes - sent, MSG_NOSIGNAL);
        if (got <= 0) { perror("joinecho"); exit(2); }
        sent += got;
    }
}
static void answer_join(const Peer *p) {
    int leads = p == joined[0];
    begin(p);
    put32(1);
    text("range");
    member_id(joined[0]);
    member_id(p);
    put32(leads ? member_count : 0);
    for (int i = 0; leads && i < member_count; i++) {
        member_id(joined[i]);
        put32(0);
    }
    send_out(p);
}
static void answer_sync(const Peer *p) {
    begin(p);
    put32(1);
    out[out_bytes++] = 'x';
    send_out(p);
    if (++synced_count == member_count) joined_count = synced_count = waiting_count = assigned = 0;
}
static void answer(Peer *p) {
    int key = p->in[4] << 8 | p->in[5];
    memcpy(p->correlation, p->in + 8, 4);
    if (key == JOIN) {
        joined[joined_count++] = p;
        for (int i = 0; joined_count == member_count && i < member_count; i++) answer_join(joined[i]);
    } else if (key == HEARTBEAT) {
        begin(p);
        send_out(p);
    } else if (key != SYNC) {
        fprintf(stderr, "joinecho: a request of key %d\n", key);
        exit(2);
    } else if (assigned) {
        answer_sync(p);
    } else {
        waiting[waiting_count++] = p;
        if (p != joined[0]) return;
        assigned = 1;
        for (int i = 0, count = waiting_count; i < count; i++) answer_sync(waiting[i]);
    }
}
static void receive(Peer *p) {
    ssize_t got = recv(p->fd, p->in + p->in_bytes, IN_ROOM - p->in_bytes, MSG_DONTWAIT);
    if (got <= 0) {
        close(p->fd);
        free(p);
        return;
    }
    p->in_bytes += got;
    while (p->in_bytes >= HEADER) {
        uint32_t size;
        memcpy(&size, p->in, 4);
        size_t whole = 4 + ntohl(size);
        if (p->in_bytes < whole) return;
        answer(p);
        memmove(p->in, p->in + whole, p->in_bytes - whole);
        p->in_bytes -= whole;
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    int listener = socket(AF_INET, SOCK_STREAM, 0), chosen = epoll_create1(0), on = 1;
    member_count = argc == 2 ? atoi(argv[1]) : 0;
    if (member_count < 1 || member_count > PEERS_MAX / 2) { fprintf(stderr, "joinecho MEMBERS\n"); return 2; }
    if (bind(listener, (void *)&where, size) || listen(listener, PEERS_MAX)
        || getsockname(listener, (void *)&where, &size)) { perror("joinecho"); return 2; }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[64];
    epoll_ctl(chosen, EPOLL_CTL_ADD, listener, &event);
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(chosen, events, 64, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr) { receive(events[i].data.ptr); continue; }
            int fd = accept(listener, NULL, NULL);
            if (fd < 0 || fd >= PEERS_MAX) { perror("joinecho"); return 2; }
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            Peer *peer = calloc(1, sizeof(Peer));
            if (!peer) { perror("joinecho"); return 2; }
            peer->fd = fd;
            event.data.ptr = peer;
            epoll_ctl(chosen, EPOLL_CTL_ADD, fd, &event);
        }
    }
}
