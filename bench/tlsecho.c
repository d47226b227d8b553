// What TLS itself takes: an echo over the library that the broker is linked to, with nothing behind it.
//
//     cc -O2 -o tlsecho bench/tlsecho.c -lssl -lcrypto
//     tlsecho PEM SUITE ANSWER_BYTES
//
// TLS 1.3 with the key and the certificates of PEM. Answers each frame with ANSWER_BYTES that begin
// with its correlation id. One connection after the other, in one thread. Prints its port.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROOM = 1 << 20, HEADER = 12 };

static uint8_t in[ROOM], out[ROOM];

static int read_all(SSL *tls, uint8_t *into, size_t size) {
    while (size) {
        int got = SSL_read(tls, into, (int)size);
        if (got <= 0) return 0;
        into += got;
        size -= (size_t)got;
    }
    return 1;
}

static void serve(SSL *tls, uint32_t answer_bytes) {
    uint32_t size, body = htonl(answer_bytes - 4);
    memcpy(out, &body, 4);
    while (read_all(tls, (uint8_t *)&size, 4)) {
        size = ntohl(size);
        if (size < HEADER - 4 || size > ROOM || !read_all(tls, in, size)) return;
        memcpy(out + 4, in + 4, 4);
        if (SSL_write(tls, out, (int)answer_bytes) <= 0) return;
    }
}

int main(int argc, char **argv) {
    uint32_t answer_bytes = argc == 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (answer_bytes < HEADER || answer_bytes > ROOM || !context
        || !SSL_CTX_use_certificate_chain_file(context, argv[1])
        || !SSL_CTX_use_PrivateKey_file(context, argv[1], SSL_FILETYPE_PEM)
        || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION)
        || !SSL_CTX_set_ciphersuites(context, argv[2])) {
        fprintf(stderr, "tlsecho PEM SUITE ANSWER_BYTES\n");
        return 2;
    }
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 1);
    SSL_CTX_set_read_ahead(context, 1);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (bind(listener, (void *)&where, size) || listen(listener, 64)
        || getsockname(listener, (void *)&where, &size)) { perror("tlsecho"); return 2; }
    printf("%d\n", ntohs(where.sin_port));
    fflush(stdout);
    for (;;) {
        int peer = accept(listener, NULL, NULL);
        SSL *tls = SSL_new(context);
        setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        SSL_set_fd(tls, peer);
        if (SSL_accept(tls) == 1) {
            serve(tls, answer_bytes);
            SSL_shutdown(tls);
        }
        SSL_free(tls);
        close(peer);
    }
}
