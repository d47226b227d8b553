// One thread of load for a Kafka-compatible broker over raw sockets, JSON out.
//
//   loadgen produce --port P --topic T [--connections 1] [--in-flight 1] [--records 1]
//           [--record-bytes 100 | --batch FILE] [--requests N] [--seconds S] [--rate PER_S]
//           [--acks 1] [--partitions 1]
//   loadgen fetch   --port P --topic T [--connections 1] [--max-bytes 1048576]
//           [--requests N] [--seconds S] [--partitions 1] [--seek OFFSETS]
//   loadgen through --port P --topic T --start OFFSET --rate PER_S [--seconds S] [--acks 1] ...
//   loadgen ask     --port P --topic - --request FILE [--each BYTES] [--wants FILE]
//           [--connections 1] [--requests N] [--seconds S] [--rate PER_S]
//
// `fetch` reads on from the beginning and again from there; with --seek each request asks for an
// offset below OFFSETS, all over the place but the same ones in every run.
// `through` produces on one connection and reads on a second one, from OFFSET (the end of a partition
// nobody else writes to); latency counts from when a record was due until its fetch answer is here.
// `ask` sends the bytes of FILE (a request without its size, the correlation id at byte 4) and wants
// every answer as long as the first, or with --wants to be the bytes of that FILE after its
// correlation id. With --each the file holds several requests of so many bytes, and connection i
// sends the i-th again and again. --batch sends the one batch of FILE instead of making one.
//
// Connection i speaks to partition i % partitions; with more partitions than connections each
// request of a producer goes to the next. Without --rate the loop is closed: each
// connection has up to --in-flight requests out, and an answer sends the next. With --rate the
// times to send are fixed beforehand, and latency counts from them: a request that waited here for
// a slow broker counts its wait. The topic must exist. An answer with an error code, a wrong
// correlation id or an offset of -1 is an error: it counts neither as work nor in a percentile, and
// the exit status is 1 when there was one. Produce 7 and Fetch 4 are what is spoken: the newest
// versions before the flexible encoding that old and new brokers both take.
//
// Built with -DWITH_TLS, -lssl and -lcrypto it also takes --tls FILE: it speaks TLS, and trusts the
// certificates of FILE.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <fcntl.h>
#include <openssl/ssl.h>
#endif

enum { IN_FLIGHT_MAX = 64, EVENTS = 128, BATCH_HEADER = 61, STALL_S = 30, FILE_MAX = 1 << 20 };
enum { BAD_ANSWER = -1001 };
enum mode { PRODUCE, FETCH, THROUGH, ASK };
static const char *const MODES[] = {"produce", "fetch", "through", "ask"};

struct options {
    enum mode mode;
    const char *host, *topic, *batch, *request, *wants, *tls;
    int port, connections, in_flight, records, record_bytes, acks, partitions, max_bytes, each;
    int64_t requests, start, seek;
    double seconds, rate;
};

struct connection {
    int fd, partition, out;     // out: requests sent, or being sent, and not answered
    int reads;                  // fetches; the others produce or ask
    uint8_t *request;           // own copy, so that a half-sent one can be continued
    size_t request_size;
    size_t unsent;              // bytes of `request` still to send; 0: none under way
    int backlog;                // fixed rate: requests due while another was half-sent
    int64_t started[IN_FLIGHT_MAX];
    uint32_t head, tail;        // of `started`; also the next correlation ids
    uint8_t *answer;
    size_t answer_size, answer_space;
    int64_t offset;             // fetch: the next to ask for
    int waits_for_out;
#ifdef WITH_TLS
    SSL *tls;
#endif
};

struct totals {
    int64_t started, done, errors, bytes, records, samples, samples_space;
    int first_error;
    int64_t *latency_ns;
};

static struct options opt = {.host = "127.0.0.1", .connections = 1, .in_flight = 1, .records = 1,
                             .record_bytes = 100, .acks = 1, .partitions = 1,
                             .max_bytes = 1 << 20, .requests = INT64_MAX, .seconds = 1e9};
static struct totals sum;
static size_t partition_at, fetch_partition_at, offset_at;
static int64_t answer_bytes;    // ask: the size of the first answer
static const uint8_t *wanted;   // ask: what every answer is to be
static int64_t *due_ns;         // through: when the record of each offset was due
static int64_t due_count, due_space;
static int poller;

static void fail(const char *what) {
    fprintf(stderr, "loadgen: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(2);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// ---- bytes ----
static uint8_t *put(uint8_t *p, uint64_t value, int size) {
    for (int i = size - 1; i >= 0; i--, value >>= 8) p[i] = (uint8_t)value;
    return p + size;
}

static uint8_t *put_text(uint8_t *p, const char *text) {
    size_t size = strlen(text);
    p = put(p, size, 2);
    memcpy(p, text, size);
    return p + size;
}

static uint8_t *put_zigzag(uint8_t *p, int64_t value) {
    uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; rest >= 128; rest >>= 7) *p++ = (uint8_t)(rest | 128);
    *p++ = (uint8_t)rest;
    return p;
}

struct reader { const uint8_t *p, *end; int bad; };

static int64_t take(struct reader *r, int size) {
    if (r->bad || r->end - r->p < size) { r->bad = 1; return 0; }
    uint64_t value = r->p[0] & 0x80 ? ~0ULL : 0;
    for (int i = 0; i < size; i++) value = value << 8 | r->p[i];
    r->p += size;
    return (int64_t)value;
}

static void skip(struct reader *r, int64_t size) {
    if (r->bad || size < 0 || r->end - r->p < size) r->bad = 1;
    else r->p += size;
}

static uint32_t crc32c(const uint8_t *p, size_t size) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int k = 0; k < 8; k++) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
            table[i] = value;
        }
    uint32_t crc = ~0u;
    while (size--) crc = table[(crc ^ *p++) & 255] ^ crc >> 8;
    return ~crc;
}

// ---- requests ----
static uint8_t *put_header(uint8_t *p, int key, int version) {
    p = put(p + 4, (uint64_t)key, 2);
    p = put(p, (uint64_t)version, 2);
    p = put(p, 0, 4);  // the correlation id, written at each send
    return put_text(p, "loadgen");
}

static uint8_t *put_batch(uint8_t *start) {
    uint8_t *p = start + BATCH_HEADER;
    for (int i = 0; i < opt.records; i++) {
        uint8_t front[32], *q = front;
        *q++ = 0;                                  // attributes
        q = put_zigzag(q, 0);                      // timestamp delta
        q = put_zigzag(q, i);                      // offset delta
        q = put_zigzag(q, -1);                     // no key
        q = put_zigzag(q, opt.record_bytes);
        p = put_zigzag(p, q - front + opt.record_bytes + 1);
        memcpy(p, front, (size_t)(q - front));
        p += q - front;
        for (int k = 0; k < opt.record_bytes; k++) *p++ = (uint8_t)('a' + (i * 7 + k * 13) % 26);
        *p++ = 0;                                  // no headers
    }
    int64_t now_ms = (int64_t)time(NULL) * 1000;
    uint8_t *h = put(start, 0, 8);
    h = put(h, (uint64_t)(p - start - 12), 4);
    h = put(h, (uint64_t)-1, 4);                   // leader epoch
    h = put(h, 2, 1);                              // magic
    uint8_t *crc_at = h;
    h = put(h + 4, 0, 2);                          // attributes
    h = put(h, (uint64_t)opt.records - 1, 4);
    h = put(h, (uint64_t)now_ms, 8);
    h = put(h, (uint64_t)now_ms, 8);
    h = put(h, (uint64_t)-1, 8);                   // producer id, epoch, sequence: none
    h = put(h, (uint64_t)-1, 2);
    h = put(h, (uint64_t)-1, 4);
    put(h, (uint64_t)opt.records, 4);
    put(crc_at, crc32c(crc_at + 4, (size_t)(p - crc_at - 4)), 4);
    return p;
}

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(FILE_MAX);
    if (!file || !data) fail(path);
    *size = fread(data, 1, FILE_MAX, file);
    if (!*size || !feof(file)) { errno = EFBIG; fail(path); }
    fclose(file);
    return data;
}

static uint8_t *make_produce(uint8_t *buffer) {
    uint8_t *p = put_header(buffer, 0, 7);
    size_t file_size;
    p = put(p, (uint64_t)-1, 2);                   // no transactional id
    p = put(p, (uint64_t)opt.acks, 2);
    p = put(p, 30000, 4);
    p = put(p, 1, 4);
    p = put_text(p, opt.topic);
    p = put(p, 1, 4);
    partition_at = (size_t)(p - buffer);
    p = put(p, 0, 4);
    uint8_t *size_at = p;
    if (opt.batch) {
        const uint8_t *batch = read_file(opt.batch, &file_size);
        memcpy(p + 4, batch, file_size);
        struct reader count = {batch + 57, batch + file_size, file_size < BATCH_HEADER};
        opt.records = (int)take(&count, 4);
        p += 4 + file_size;
    } else {
        p = put_batch(p + 4);
    }
    put(size_at, (uint64_t)(p - size_at - 4), 4);
    return p;
}

static uint8_t *make_fetch(uint8_t *buffer) {
    uint8_t *p = put_header(buffer, 1, 4);
    p = put(p, (uint64_t)-1, 4);                   // replica id of a consumer
    p = put(p, 500, 4);
    p = put(p, 1, 4);
    p = put(p, (uint64_t)opt.max_bytes, 4);
    p = put(p, 0, 1);                              // read uncommitted
    p = put(p, 1, 4);
    p = put_text(p, opt.topic);
    p = put(p, 1, 4);
    fetch_partition_at = (size_t)(p - buffer);
    p = put(p, 0, 4);
    offset_at = (size_t)(p - buffer);
    p = put(p, 0, 8);
    return put(p, (uint64_t)opt.max_bytes, 4);
}

// ---- the socket, or TLS over it: both give -1 and errno as recv and send do ----
#ifdef WITH_TLS
static void begin_tls(struct connection *c) {
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        if (!context || !SSL_CTX_load_verify_locations(context, opt.tls, NULL)) fail(opt.tls);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(context, 1);
    }
    c->tls = SSL_new(context);
    if (!c->tls || !SSL_set_fd(c->tls, c->fd) || SSL_connect(c->tls) != 1) fail("TLS");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

static ssize_t tls_result(struct connection *c, int done) {
    int error = SSL_get_error(c->tls, done);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}
#endif

static ssize_t send_some(struct connection *c, const uint8_t *from, size_t size) {
#ifdef WITH_TLS
    if (c->tls) {
        int sent = SSL_write(c->tls, from, (int)size);
        return sent > 0 ? sent : tls_result(c, sent);
    }
#endif
    return send(c->fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// What TLS has taken from the socket wakes no epoll: it is read until there is no more.
static ssize_t receive_some(struct connection *c, uint8_t *into, size_t size) {
#ifdef WITH_TLS
    if (c->tls) {
        size_t have = 0;
        while (have < size) {
            int got = SSL_read(c->tls, into + have, (int)(size - have));
            if (got <= 0) return have ? (ssize_t)have : tls_result(c, got);
            have += (size_t)got;
        }
        return (ssize_t)have;
    }
#endif
    return recv(c->fd, into, size, MSG_DONTWAIT);
}

// ---- sending ----
static void watch_out(struct connection *c, int wanted) {
    if (c->waits_for_out == wanted) return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl");
    c->waits_for_out = wanted;
}

static void push(struct connection *c) {
    for (;;) {
        if (!c->unsent) {
            if (!c->backlog) break;
            c->backlog--;
            put(c->request + 8, c->head - (uint32_t)c->backlog - 1, 4);
            if (c->reads) {
                put(c->request + offset_at, (uint64_t)c->offset, 8);
            } else if (opt.partitions > opt.connections) {
                put(c->request + partition_at, (uint64_t)c->partition, 4);
                c->partition = (c->partition + opt.connections) % opt.partitions;
            }
            c->unsent = c->request_size;
        }
        const uint8_t *from = c->request + c->request_size - c->unsent;
        ssize_t sent = send_some(c, from, c->unsent);
        if (sent < 0) {
            if (errno == EAGAIN) { watch_out(c, 1); return; }
            if (errno == EINTR) continue;
            fail("send");
        }
        c->unsent -= (size_t)sent;
    }
    watch_out(c, 0);
}

static void start_request(struct connection *c, int64_t counted_from) {
    if (opt.mode == THROUGH && !c->reads) {
        if (due_count == due_space) {
            due_space = due_space ? due_space * 2 : 1 << 16;
            due_ns = realloc(due_ns, (size_t)due_space * sizeof(int64_t));
            if (!due_ns) fail("memory");
        }
        due_ns[due_count++] = counted_from;
    }
    c->started[c->head % IN_FLIGHT_MAX] = counted_from;
    c->head++;
    c->out++;
    c->backlog++;
    sum.started++;
    push(c);
}

// ---- answers ----
// A latency in ns; those of `through` are counted where its records arrive.
static void sample(int64_t latency_ns) {
    if (sum.samples == sum.samples_space) {
        sum.samples_space = sum.samples_space ? sum.samples_space * 2 : 1 << 20;
        sum.latency_ns = realloc(sum.latency_ns, (size_t)sum.samples_space * sizeof(int64_t));
        if (!sum.latency_ns) fail("memory");
    }
    sum.latency_ns[sum.samples++] = latency_ns;
}

static void arrived(int64_t from, int64_t until, int64_t now) {
    for (int64_t i = from; i < until; i++) {
        if (i - opt.start < 0 || i - opt.start >= due_count) { sum.errors++; return; }
        sample(now - due_ns[i - opt.start]);
    }
}

static int produce_answer(struct reader *r, struct connection *c) {
    (void)c;
    if (take(r, 4) != 1) return BAD_ANSWER;
    skip(r, take(r, 2));
    if (take(r, 4) != 1) return BAD_ANSWER;
    take(r, 4);
    int64_t code = take(r, 2), base_offset = take(r, 8);
    if (r->bad) return BAD_ANSWER;
    if (code) return (int)code;
    return base_offset < 0 ? BAD_ANSWER : 0;
}

static int fetch_answer(struct reader *r, struct connection *c, int64_t now) {
    take(r, 4);                                    // throttle time
    if (take(r, 4) != 1) return BAD_ANSWER;
    skip(r, take(r, 2));
    if (take(r, 4) != 1) return BAD_ANSWER;
    take(r, 4);
    int64_t code = take(r, 2), high_watermark = take(r, 8);
    take(r, 8);
    int64_t aborted = take(r, 4);
    if (aborted > 0) skip(r, aborted * 16);
    int64_t size = take(r, 4);
    if (r->bad || r->end - r->p < size) return BAD_ANSWER;
    if (code) return (int)code;
    struct reader records = {r->p, r->p + (size > 0 ? size : 0), 0};
    int64_t next = c->offset;
    while (records.end - records.p >= BATCH_HEADER) {
        int64_t base = take(&records, 8), rest = take(&records, 4);
        if (records.end - records.p < rest) break;  // the last may be cut off
        struct reader header = records;
        skip(&header, 11);
        next = base + take(&header, 4) + 1;
        skip(&header, 30);
        sum.records += take(&header, 4);
        if (header.bad) return BAD_ANSWER;
        skip(&records, rest);
    }
    sum.bytes += size > 0 ? size : 0;
    if (opt.mode == THROUGH) {                     // the end is waited at, an answer may be empty
        arrived(c->offset, next, now);
        c->offset = next;
        return 0;
    }
    if (opt.seek) {
        static uint64_t state = 1;
        if (next == c->offset) return BAD_ANSWER;
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        c->offset = (int64_t)((state >> 16) % (uint64_t)opt.seek);
        return 0;
    }
    if (next == c->offset && c->offset == 0) return BAD_ANSWER;  // an empty topic is no load
    c->offset = next == c->offset || next >= high_watermark ? 0 : next;
    return 0;
}

static int asked_answer(struct reader *r) {
    int64_t size = r->end - r->p;
    if (!answer_bytes) answer_bytes = size;
    sum.bytes += size;
    if (size != answer_bytes) return BAD_ANSWER;
    return wanted && memcmp(r->p, wanted, (size_t)size) ? BAD_ANSWER : 0;
}

static void one_answer(struct connection *c, const uint8_t *frame, size_t size, int64_t now) {
    struct reader r = {frame, frame + size, 0};
    int code = BAD_ANSWER;
    if ((uint32_t)take(&r, 4) == c->tail && c->out > 0)
        code = c->reads ? fetch_answer(&r, c, now)
            : opt.mode == ASK ? asked_answer(&r) : produce_answer(&r, c);
    int64_t from = c->started[c->tail % IN_FLIGHT_MAX];
    c->tail++;
    c->out--;
    if (code) {
        if (!sum.errors++) sum.first_error = code;
        return;
    }
    sum.done++;
    if (!c->reads && opt.mode != ASK) {
        sum.bytes += (int64_t)c->request_size;
        sum.records += opt.mode == THROUGH ? 0 : opt.records;
    }
    if (opt.mode != THROUGH) sample(now - from);
}

// Returns how many answers were complete.
static int receive(struct connection *c) {
    ssize_t got = receive_some(c, c->answer + c->answer_size, c->answer_space - c->answer_size);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) { if (!got) errno = ECONNRESET; fail("recv"); }
    c->answer_size += (size_t)got;
    int64_t now = now_ns();
    size_t at = 0;
    int count = 0;
    while (c->answer_size - at >= 4) {
        struct reader r = {c->answer + at, c->answer + c->answer_size, 0};
        int64_t size = take(&r, 4);
        if (size < 4 || (size_t)size + 4 > c->answer_space) { errno = EMSGSIZE; fail("answer"); }
        if (r.end - r.p < size) break;
        one_answer(c, r.p, (size_t)size, now);
        at += 4 + (size_t)size;
        count++;
    }
    if (at) memmove(c->answer, c->answer + at, c->answer_size - at);
    c->answer_size -= at;
    return count;
}

// ---- the run ----
static void connect_one(struct connection *c, const uint8_t *request, size_t size, int reads) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    int on = 1;
    if (inet_pton(AF_INET, opt.host, &to.sin_addr) != 1) fail("--host wants an IPv4 address");
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
#ifdef WITH_TLS
    if (opt.tls) begin_tls(c);
#endif
    c->reads = reads;
    c->request_size = size;
    c->request = malloc(size);
    c->answer_space = (reads ? (size_t)opt.max_bytes : 0) + (1 << 20);
    c->answer = malloc(c->answer_space);
    if (!c->request || !c->answer) fail("memory");
    memcpy(c->request, request, size);
    put(c->request, size - 4, 4);
    if (opt.mode != ASK)
        put(c->request + (reads ? fetch_partition_at : partition_at), (uint64_t)c->partition, 4);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
}

// The connections, and for `through` one more at the end, which reads.
static struct connection *connect_all(void) {
    struct connection *all = calloc((size_t)opt.connections + 1, sizeof *all);
    uint8_t *request = malloc(FILE_MAX + 1024 + (size_t)opt.records * ((size_t)opt.record_bytes + 32));
    uint8_t *fetch = malloc(1024);
    if (!all || !request || !fetch) fail("memory");
    size_t fetch_size = (size_t)(make_fetch(fetch) - fetch), size, count = 1, wanted_size;
    const uint8_t *asked = NULL;
    if (opt.mode == ASK) {
        asked = read_file(opt.request, &size);
        if (opt.each > 0) {
            count = size / (size_t)opt.each;
            size = (size_t)opt.each;
        }
        if (!count) { errno = EINVAL; fail("--each is more than the file has"); }
        if (opt.wants) {
            wanted = read_file(opt.wants, &wanted_size);
            answer_bytes = (int64_t)wanted_size;
        }
        size += 4;
    } else {
        size = (size_t)(make_produce(request) - request);
    }
    for (int i = 0; i < opt.connections; i++) {
        all[i].partition = i % opt.partitions;
        if (asked) memcpy(request + 4, asked + ((size_t)i % count) * (size - 4), size - 4);
        if (opt.mode == FETCH) connect_one(&all[i], fetch, fetch_size, 1);
        else connect_one(&all[i], request, size, 0);
    }
    if (opt.mode == THROUGH) {
        connect_one(&all[1], fetch, fetch_size, 1);
        all[1].offset = opt.start;
    }
    return all;
}

// Sends what is due by the timetable; returns when the next one is due. A connection that is full
// is passed over; when all are full the request stays due, and its wait counts.
static int64_t send_due(struct connection *all, int64_t due, int64_t gap_ns, int64_t last_ns) {
    static int turn;
    while (due < last_ns && sum.started < opt.requests && due <= now_ns()) {
        struct connection *free_one = NULL;
        for (int i = 0; i < opt.connections && !free_one; i++) {
            struct connection *c = &all[turn++ % opt.connections];
            if (c->out < IN_FLIGHT_MAX) free_one = c;
        }
        if (!free_one) break;
        start_request(free_one, due);
        due += gap_ns;
    }
    return due;
}

static int finished(int more) {
    if (sum.errors && opt.mode == THROUGH) return 1;
    if (more) return 0;
    if (opt.mode == THROUGH) return sum.samples == due_count;
    return sum.done + sum.errors == sum.started;
}

static void run(struct connection *all, int64_t begin) {
    int64_t last = begin + (int64_t)(opt.seconds * 1e9), due = begin, heard = begin;
    int64_t gap_ns = opt.rate > 0 ? (int64_t)(1e9 / opt.rate) : 0;
    if (!gap_ns)
        for (int k = 0; k < opt.in_flight; k++)
            for (int i = 0; i < opt.connections && sum.started < opt.requests; i++)
                start_request(&all[i], now_ns());
    if (opt.mode == THROUGH) start_request(&all[1], now_ns());
    for (;;) {
        if (gap_ns) due = send_due(all, due, gap_ns, last);
        int64_t now = now_ns();
        int more = sum.started < opt.requests && (gap_ns ? due < last : now < last);
        if (finished(more)) return;
        if (now - heard > STALL_S * 1000000000LL) { errno = ETIMEDOUT; fail("no answer"); }
        int64_t wait = gap_ns && more ? (due > now ? due - now : 1000000) : 1000000000;
        struct timespec limit = {wait / 1000000000, wait % 1000000000};
        struct epoll_event events[EVENTS];
        int count = epoll_pwait2(poller, events, EVENTS, &limit, NULL);
        if (count < 0 && errno != EINTR) fail("epoll_pwait2");
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) push(c);
            if (!(events[i].events & ~(uint32_t)EPOLLOUT)) continue;
            int answers = receive(c);
            if (!answers) continue;
            heard = now_ns();
            if (opt.mode == THROUGH) {
                if (c->reads) start_request(c, heard);
                continue;
            }
            while (!gap_ns && answers-- && sum.started < opt.requests && heard < last)
                start_request(c, now_ns());
        }
    }
}

static int by_size(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static double percentile_us(double part) {
    return sum.samples ? (double)sum.latency_ns[(int64_t)((double)(sum.samples - 1) * part)] / 1e3 : 0;
}

static void report(double seconds) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
        + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    if (sum.samples) qsort(sum.latency_ns, (size_t)sum.samples, sizeof(int64_t), by_size);
    printf("{\"mode\": \"%s\", \"requests\": %lld, \"errors\": %lld, \"first_error\": %d, "
           "\"seconds\": %.6f, \"requests_per_s\": %.1f, \"bytes\": %lld, \"mb_per_s\": %.2f, "
           "\"records\": %lld, ", MODES[opt.mode], (long long)sum.done, (long long)sum.errors,
           sum.first_error, seconds, (double)sum.done / seconds, (long long)sum.bytes,
           (double)sum.bytes / seconds / 1e6, (long long)sum.records);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, "
           "\"generator_cpu_s\": %.3f}\n", percentile_us(0.5), percentile_us(0.99),
           percentile_us(0.999), percentile_us(1), cpu);
}

static void parse(int count, char **words) {
    int known_mode = 0;
    for (enum mode m = PRODUCE; m <= ASK; m++)
        if (count > 1 && !strcmp(words[1], MODES[m])) { opt.mode = m; known_mode = 1; }
    if (!known_mode) { errno = EINVAL; fail("loadgen produce|fetch|through|ask --port P ..."); }
    struct { const char *name; int *whole; } numbers[] = {
        {"--port", &opt.port}, {"--connections", &opt.connections}, {"--acks", &opt.acks},
        {"--in-flight", &opt.in_flight}, {"--records", &opt.records},
        {"--record-bytes", &opt.record_bytes}, {"--partitions", &opt.partitions},
        {"--max-bytes", &opt.max_bytes}, {"--each", &opt.each}};
    for (int i = 2; i < count; i += 2) {
        const char *name = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        int known = 0;
        if (!value) { errno = EINVAL; fail(name); }
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (!strcmp(name, numbers[k].name)) { *numbers[k].whole = atoi(value); known = 1; }
        if (!strcmp(name, "--host")) { opt.host = value; known = 1; }
        if (!strcmp(name, "--topic")) { opt.topic = value; known = 1; }
        if (!strcmp(name, "--batch")) { opt.batch = value; known = 1; }
        if (!strcmp(name, "--request")) { opt.request = value; known = 1; }
        if (!strcmp(name, "--wants")) { opt.wants = value; known = 1; }
#ifdef WITH_TLS
        if (!strcmp(name, "--tls")) { opt.tls = value; known = 1; }
#endif
        if (!strcmp(name, "--start")) { opt.start = atoll(value); known = 1; }
        if (!strcmp(name, "--seek")) { opt.seek = atoll(value); known = 1; }
        if (!strcmp(name, "--requests")) { opt.requests = atoll(value); known = 1; }
        if (!strcmp(name, "--seconds")) { opt.seconds = atof(value); known = 1; }
        if (!strcmp(name, "--rate")) { opt.rate = atof(value); known = 1; }
        if (!known) { errno = EINVAL; fail(name); }
    }
    if (!opt.topic || strlen(opt.topic) > 249 || !opt.port || opt.connections < 1
        || opt.in_flight < 1 || opt.in_flight > IN_FLIGHT_MAX || opt.records < 1
        || opt.record_bytes < 0 || opt.partitions < 1 || opt.max_bytes < 1
        || (opt.requests == INT64_MAX && opt.seconds > 1e8)) {
        errno = EINVAL;
        fail("options: port, topic, and requests or seconds are needed; in-flight is at most 64");
    }
}

int main(int count, char **words) {
    prctl(PR_SET_TIMERSLACK, 1);  // the default of 50 us would be larger than the broker's own time
    parse(count, words);
    if (opt.mode == FETCH) opt.in_flight = 1;  // the next offset is known from the answer only
    if (opt.mode == THROUGH) opt.connections = opt.records = 1;
    if ((opt.mode == THROUGH && opt.rate <= 0) || (opt.mode == ASK && !opt.request)) {
        errno = EINVAL;
        fail("through needs --rate, ask needs --request");
    }
    poller = epoll_create1(0);
    if (poller < 0) fail("epoll");
    struct connection *all = connect_all();
    int64_t begin = now_ns();
    run(all, begin);
    report((double)(now_ns() - begin) / 1e9);
    return sum.errors ? 1 : 0;
}
