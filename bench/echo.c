// What loopback itself takes: answers each frame with one that has its correlation id.
//
//     cc -O2 -o echo bench/echo.c
//     echo [ANSWER_BYTES [FILE]]
//
// One thread, epoll, one recv and one send a request: the calls that no broker can do without; with a
// FILE also one write of the request's bytes. Answers have 60 bytes unless told otherwise. Prints its
// port. Small frames only: what a recv gives is taken to be whole frames.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 65536, HEADER = 12 };

static size_t answer_bytes = 60;
static int file = -1;
static off_t written;

static void answer(int peer) {
    static uint8_t in[ROOM], out[ROOM];
    ssize_t got = recv(peer, in, sizeof in, MSG_DONTWAIT);
    size_t at = 0, made = 0;
    if (got <= 0) { close(peer); return; }
    while (at + HEADER <= (size_t)got && made + answer_bytes <= sizeof out) {
        uint32_t size;
        memcpy(&size, in + at, 4);
        if (file >= 0) {
            ssize_t put = pwrite(file, in + at, 4 + ntohl(size), written);
            if (put < 0) { perror("echo"); exit(2); }
            written += put;
        }
        uint32_t body = htonl(answer_bytes - 4);
        memcpy(out + made, &body, 4);
        memcpy(out + made + 4, in + at + 8, 4);
        made += answer_bytes;
        at += 4 + ntohl(size);
    }
    if (send(peer, out, made, MSG_NOSIGNAL) < 0) close(peer);
}

int main(int argc, char **argv) {
    if (argc > 1) answer_bytes = strtoul(argv[1], NULL, 10);
    if (argc > 2) file = open(argv[2], O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (answer_bytes < HEADER || answer_bytes > ROOM || (argc > 2 && file < 0)) { perror("echo"); return 2; }
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    int listener = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0), on = 1;
    if (bind(listener, (void *)&where, size) || listen(listener, 64)
        || getsockname(listener, (void *)&where, &size)) { perror("echo"); return 2; }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(poller, events, 64, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) { answer(events[i].data.fd); continue; }
            int peer = accept(listener, NULL, NULL);
            setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            event.data.fd = peer;
            epoll_ctl(poller, EPOLL_CTL_ADD, peer, &event);
        }
    }
}
