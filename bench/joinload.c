/* A consumer group of N members, classic protocol, from the first join to all assigned.
 *
 *     cc -O2 -o joinload bench/joinload.c
 *     joinload PORT GROUP MEMBERS HEARTBEAT_US
 *
 * One thread with epoll, a connection a member. All join at once (JoinGroup 3, an empty member id);
 * who is told to lead assigns a byte to each; a heartbeat that is answered REBALANCE_IN_PROGRESS, or
 * a sync, makes its member join again. It ends when all have their part of one generation, and
 * prints the seconds since the first join, and how many requests of each kind were answered. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { JOIN = 11, HEARTBEAT = 12, SYNC = 14 };
enum { ILLEGAL_GENERATION = 22, UNKNOWN_MEMBER = 25, REBALANCE = 27 };
enum { ID_MAX = 128, PATIENCE_S = 120, SESSION_MS = 30000, REBALANCE_MS = 60000, ANSWER_BYTES = 512, SETTLE_US = 100000 };

typedef struct {
    int fd, doing, generation, assigned;
    uint16_t id_bytes;
    char id[ID_MAX];
    double beat_at;
    uint8_t *in;
    size_t in_bytes, in_room;
} Member;

static Member *members;
static int member_count, assigned_count, best_generation;
static const char *group;
static double heartbeat_s;
static long answered[16];
static int *due, due_first, due_end; /* a ring: each member is in it once at most */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void die(const char *why, long what) {
    fprintf(stderr, "joinload: %s %ld\n", why, what);
    exit(1);
}

/* ---- what is sent ---- */
typedef struct {
    uint8_t *at, *begin;
    size_t room;
} Out;

static void put(Out *o, const void *p, size_t n) {
    size_t used = o->at - o->begin;
    if (used + n > o->room) {
        o->room = 2 * (used + n);
        o->begin = realloc(o->begin, o->room);
        if (!o->begin) die("no memory for", o->room);
        o->at = o->begin + used;
    }
    memcpy(o->at, p, n);
    o->at += n;
}
static void put16(Out *o, int v) { uint16_t b = htobe16(v); put(o, &b, 2); }
static void put32(Out *o, int v) { uint32_t b = htobe32(v); put(o, &b, 4); }
static void text(Out *o, const char *s, int n) { put16(o, n); put(o, s, n); }
static void begin(Out *o, int key, int version) {
    o->at = o->begin;
    put32(o, 0);
    put16(o, key);
    put16(o, version);
    put32(o, 1);
    text(o, "bench", 5);
    text(o, group, strlen(group));
}
static void send_out(Out *o, Member *m, int key) {
    size_t n = o->at - o->begin, sent = 0;
    uint32_t size = htobe32(n - 4);
    memcpy(o->begin, &size, 4);
    m->doing = key;
    while (sent < n) { /* the socket blocks: a leader's assignment is larger than its buffer */
        ssize_t got = send(m->fd, o->begin + sent, n - sent, MSG_NOSIGNAL);
        if (got <= 0) die("could not send request", key);
        sent += got;
    }
}
static Out out;

static void set_assigned(Member *m, int generation) {
    if (m->assigned == best_generation) assigned_count--;
    m->assigned = generation;
    if (generation > best_generation) {
        best_generation = generation;
        assigned_count = 0;
    }
    if (generation == best_generation) assigned_count++;
}
static void join(Member *m) {
    set_assigned(m, -1);
    begin(&out, JOIN, 3);
    put32(&out, SESSION_MS);
    put32(&out, REBALANCE_MS);
    text(&out, m->id, m->id_bytes);
    text(&out, "consumer", 8);
    put32(&out, 1);
    text(&out, "range", 5);
    put32(&out, 0);
    send_out(&out, m, JOIN);
}
static void begin_with_member(Member *m, int key) {
    begin(&out, key, 1);
    put32(&out, m->generation);
    text(&out, m->id, m->id_bytes);
}
static void heartbeat(Member *m) {
    begin_with_member(m, HEARTBEAT);
    send_out(&out, m, HEARTBEAT);
}

/* ---- what is answered ---- */
static int get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }
static int get32(const uint8_t *p) { return (int32_t)((uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]); }

static void idle(Member *m) {
    m->doing = 0;
    m->beat_at = now() + heartbeat_s;
    due[due_end++ % member_count] = m - members;
}
static void joined(Member *m, const uint8_t *p) {
    int count;
    m->generation = get32(p);
    p += 4;
    for (int field = 0; field < 3; field++) { /* protocol, leader, member */
        int n = get16(p);
        if (field == 2) {
            if (n > ID_MAX) die("a member id of bytes", n);
            memcpy(m->id, p + 2, m->id_bytes = n);
        }
        p += 2 + n;
    }
    count = get32(p);
    p += 4;
    begin_with_member(m, SYNC);
    put32(&out, count);
    for (int i = 0; i < count; i++) {
        int n = get16(p);
        text(&out, (const char *)p + 2, n);
        put32(&out, 1);
        put(&out, "x", 1);
        p += 2 + n;
        p += 4 + get32(p);
    }
    send_out(&out, m, SYNC);
}
static void set_room(Member *m, size_t room) {
    m->in = realloc(m->in, room);
    if (!m->in) die("no memory for", room);
    m->in_room = room;
}
static void read_answer(Member *m) {
    if (m->in_bytes == m->in_room) set_room(m, 4 * m->in_room); /* who leads is told of all */
    ssize_t got = recv(m->fd, m->in + m->in_bytes, m->in_room - m->in_bytes, 0);
    if (got <= 0) die("a connection was closed, doing", m->doing);
    m->in_bytes += got;
    if (m->in_bytes < 4 || m->in_bytes < 4 + (size_t)get32(m->in)) return;
    m->in_bytes = 0;
    answered[m->doing]++;
    int error = get16(m->in + 12); /* after size, correlation id, throttle time */
    if (error == UNKNOWN_MEMBER) m->id_bytes = 0;
    if (error == UNKNOWN_MEMBER || error == ILLEGAL_GENERATION || error == REBALANCE) {
        join(m);
    } else if (error) {
        die("refused with", error);
    } else if (m->doing == JOIN) {
        joined(m, m->in + 14);
    } else {
        if (m->doing == SYNC) set_assigned(m, m->generation);
        idle(m);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) die("PORT GROUP MEMBERS HEARTBEAT_US are wanted, words given:", argc - 1);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    group = argv[2];
    member_count = atoi(argv[3]);
    heartbeat_s = atoi(argv[4]) / 1e6;
    if (member_count < 1) die("a group of", member_count);
    members = calloc(member_count, sizeof *members);
    due = calloc(member_count, sizeof *due);
    struct epoll_event *events = calloc(member_count, sizeof *events);
    int chosen = epoll_create1(0), one = 1;
    if (!members || !due || !events || chosen < 0) die("no memory for members:", member_count);
    for (int i = 0; i < member_count; i++) {
        Member *m = members + i;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = m};
        m->assigned = -1;
        set_room(m, ANSWER_BYTES);
        memset(m->in, 0, m->in_room); /* no page comes while the clock runs */
        m->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (m->fd < 0 || connect(m->fd, (struct sockaddr *)&to, sizeof to)) die("no connection", i);
        setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (epoll_ctl(chosen, EPOLL_CTL_ADD, m->fd, &e)) die("no epoll for", i);
    }
    usleep(SETTLE_US); /* what the broker does for new connections is no part of the group's time */
    double began = now();
    for (int i = 0; i < member_count; i++) join(members + i);
    while (assigned_count < member_count) {
        int count = epoll_wait(chosen, events, member_count, 1);
        for (int i = 0; i < count; i++) read_answer(events[i].data.ptr);
        double t = now();
        if (t - began > PATIENCE_S) die("assigned within the time:", assigned_count);
        while (due_first < due_end && members[due[due_first % member_count]].beat_at <= t)
            heartbeat(members + due[due_first++ % member_count]);
    }
    printf("{\"all_assigned_s\": %.6f, \"joins\": %ld, \"syncs\": %ld, \"heartbeats\": %ld}\n",
           now() - began, answered[JOIN], answered[SYNC], answered[HEARTBEAT]);
    return 0;
}
