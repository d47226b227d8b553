"""TLS on the network threads: OpenSSL between the socket and the frames, without the GIL.

A session is a non-blocking SSL over a BIO of this module that calls recv and send. OpenSSL buffers
received records itself, READ_BYTES at most, and frees its buffers while a connection is idle. One
call of tls_receive decrypts records until the caller's buffer is full or the socket is empty; one
call of tls_send encrypts records of RECORD_BYTES until the socket is full. Renegotiation,
compression and 0-RTT are off. docs/decisions/tls.md has the design and what was measured.

Next on the data path: cext/network/connection.pyx.
"""
from libc.errno cimport EAGAIN, EINTR, EPIPE, EPROTO
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from barnabas.cext.codec.buffer cimport Buffer, buffer_reserve
from barnabas.cext.memory.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t,
    pthread_mutex_unlock,
)
from barnabas.cext.memory.sys cimport iovec
from barnabas.cext.network.sockets cimport net_recv, net_send
from barnabas.cext.network.transport cimport *

cdef extern from "<openssl/ssl.h>" nogil:
    ctypedef struct SSL:
        pass
    ctypedef struct SSL_CTX:
        pass
    ctypedef struct SSL_METHOD:
        pass
    long SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_COMPRESSION, SSL_OP_CIPHER_SERVER_PREFERENCE
    long SSL_MODE_ENABLE_PARTIAL_WRITE, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, SSL_MODE_RELEASE_BUFFERS
    int SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_ZERO_RETURN
    int SSL_VERIFY_NONE, SSL_VERIFY_PEER, SSL_VERIFY_FAIL_IF_NO_PEER_CERT
    int SSL_SESS_CACHE_OFF
    int TLS1_2_VERSION, TLS1_3_VERSION
    const SSL_METHOD* TLS_server_method()
    SSL_CTX* SSL_CTX_new(const SSL_METHOD*)
    void SSL_CTX_free(SSL_CTX*)
    unsigned long SSL_CTX_set_options(SSL_CTX*, unsigned long)
    long SSL_CTX_set_mode(SSL_CTX*, long)
    long SSL_CTX_set_session_cache_mode(SSL_CTX*, long)
    int SSL_CTX_set_session_id_context(SSL_CTX*, const unsigned char*, unsigned int)
    int SSL_CTX_set_num_tickets(SSL_CTX*, size_t)
    int SSL_CTX_set_min_proto_version(SSL_CTX*, int)
    int SSL_CTX_set_max_proto_version(SSL_CTX*, int)
    int SSL_CTX_set_cipher_list(SSL_CTX*, const char*)
    int SSL_CTX_set_ciphersuites(SSL_CTX*, const char*)
    const char* OPENSSL_cipher_name(const char*)
    long SSL_CTX_set_dh_auto(SSL_CTX*, int)
    void SSL_CTX_set_read_ahead(SSL_CTX*, int)
    void SSL_set_default_read_buffer_len(SSL*, size_t)
    int SSL_CTX_use_certificate(SSL_CTX*, X509*)
    long SSL_CTX_add0_chain_cert(SSL_CTX*, X509*)
    int SSL_CTX_use_PrivateKey(SSL_CTX*, EVP_PKEY*)
    int SSL_CTX_check_private_key(SSL_CTX*)
    void SSL_CTX_set_verify(SSL_CTX*, int, void*)
    X509_STORE* SSL_CTX_get_cert_store(SSL_CTX*)
    int SSL_CTX_add_client_CA(SSL_CTX*, X509*)
    SSL* SSL_new(SSL_CTX*)
    void SSL_free(SSL*)
    void SSL_set_bio(SSL*, BIO*, BIO*)
    void SSL_set_accept_state(SSL*)
    int SSL_do_handshake(SSL*)
    int SSL_read_ex(SSL*, void*, size_t, size_t*)
    int SSL_write_ex(SSL*, const void*, size_t, size_t*)
    int SSL_has_pending(const SSL*)
    int SSL_shutdown(SSL*)
    int SSL_get_error(const SSL*, int)
    X509* SSL_get_peer_certificate(const SSL*)
    long SSL_get_verify_result(const SSL*)

cdef extern from "<openssl/x509v3.h>" nogil:
    ctypedef struct X509:
        pass
    ctypedef struct X509_NAME:
        pass
    ctypedef struct X509_STORE:
        pass
    ctypedef struct GENERAL_NAME:
        pass
    ctypedef struct GENERAL_NAMES:
        pass
    ctypedef struct EVP_PKEY:
        pass
    unsigned long X509_V_FLAG_PARTIAL_CHAIN
    long X509_V_OK
    int NID_subject_alt_name
    X509* d2i_X509(X509**, const unsigned char**, long)
    int i2d_X509(X509*, unsigned char**)
    void X509_free(X509*)
    int X509_STORE_add_cert(X509_STORE*, X509*)
    int X509_STORE_set_flags(X509_STORE*, unsigned long)
    X509_NAME* X509_get_subject_name(const X509*)
    int i2d_X509_NAME(X509_NAME*, unsigned char**)
    void* X509_get_ext_d2i(const X509*, int, int*, int*)
    int sk_GENERAL_NAME_num(const GENERAL_NAMES*)
    GENERAL_NAME* sk_GENERAL_NAME_value(const GENERAL_NAMES*, int)
    int i2d_GENERAL_NAME(GENERAL_NAME*, unsigned char**)
    void GENERAL_NAMES_free(GENERAL_NAMES*)

cdef extern from "<openssl/pem.h>" nogil:
    EVP_PKEY* PEM_read_bio_PrivateKey(BIO*, EVP_PKEY**, void*, void*)
    EVP_PKEY* d2i_AutoPrivateKey(EVP_PKEY**, const unsigned char**, long)
    int i2d_PrivateKey(EVP_PKEY*, unsigned char**)
    void EVP_PKEY_free(EVP_PKEY*)

cdef extern from "<openssl/bio.h>" nogil:
    ctypedef struct BIO:
        pass
    ctypedef struct BIO_METHOD:
        pass
    int BIO_TYPE_SOURCE_SINK, BIO_CTRL_FLUSH, BIO_CTRL_EOF
    int BIO_get_new_index()
    BIO_METHOD* BIO_meth_new(int, const char*)
    int BIO_meth_set_read(BIO_METHOD*, int (*)(BIO*, char*, int) noexcept nogil)
    int BIO_meth_set_write(BIO_METHOD*, int (*)(BIO*, const char*, int) noexcept nogil)
    int BIO_meth_set_ctrl(BIO_METHOD*, long (*)(BIO*, int, long, void*) noexcept nogil)
    BIO* BIO_new(const BIO_METHOD*)
    BIO* BIO_new_mem_buf(const void*, int)
    int BIO_free(BIO*)
    void BIO_set_data(BIO*, void*)
    void* BIO_get_data(BIO*)
    void BIO_set_init(BIO*, int)
    void BIO_clear_retry_flags(BIO*)
    void BIO_set_retry_read(BIO*)
    void BIO_set_retry_write(BIO*)

cdef extern from "<openssl/err.h>" nogil:
    unsigned long ERR_get_error()
    unsigned long ERR_peek_error()
    void ERR_clear_error()
    int ERR_GET_REASON(unsigned long)
    const char* ERR_reason_error_string(unsigned long)

cdef extern from "<openssl/crypto.h>" nogil:
    int OPENSSL_VERSION
    const char* OpenSSL_version(int)
    void OPENSSL_free(void*)
    void OPENSSL_cleanse(void*, size_t)

cdef enum:
    RECORD_BYTES = 16384            # the most plain bytes of one record
    READ_BYTES = 65536              # bytes of records that OpenSSL reads from the socket at once
    HANDSHAKE_BYTES_MAX = 131072    # from the peer before its first request: mostly certificates
    TURN_BYTES = 262144             # received or sent in one call
    RECORD_OVERHEAD_MIN = 21        # a header of 5 bytes and a tag of 8, and in TLS 1.2 an
                                    # explicit nonce of 8; in TLS 1.3 a type, and a tag of 16
    HANDSHAKE_RECORD = 22           # the first byte of a ClientHello

REQUESTED, REQUIRED = 1, 2          # of TlsContext(client_auth=)


cdef struct Session:
    SSL* ssl
    int fd
    bint open                       # the handshake is over
    bint ended                      # the socket has reached its end
    bint failed                     # OpenSSL must not be called any more
    bint buffered                   # see TRANSPORT_BUFFERED
    bint writes                     # see TRANSPORT_WRITES
    int more                        # more bytes follow those that are sent now
    int64_t quota                   # the bytes that the BIO may still read
    int64_t received                # in the handshake
    size_t held                     # plain bytes of the record that the socket has not taken
    int64_t reason
    uint8_t first                   # the first byte that the peer sent


# ------------------------------------------------------------------ the socket, as OpenSSL sees it

cdef int _bio_read(BIO* bio, char* into, int size_bytes) noexcept nogil:
    cdef Session* s = <Session*>BIO_get_data(bio)
    cdef ssize_t got
    BIO_clear_retry_flags(bio)
    if s.quota <= 0:
        if not s.open:
            s.reason = REASON_TOO_LARGE
            return -1
        BIO_set_retry_read(bio)     # other connections have their turn; epoll still reports the bytes
        return -1
    got = net_recv(s.fd, into, size_bytes)
    if got > 0:
        if s.received == 0:
            s.first = <uint8_t>into[0]
        s.received += got
        s.quota -= got
        return <int>got
    # OpenSSL must not see the end, because it would send no more answers. tls_receive reports the
    # end.
    s.ended = got != -EAGAIN and got != -EINTR
    BIO_set_retry_read(bio)
    return -1


cdef int _bio_write(BIO* bio, const char* data, int size_bytes) noexcept nogil:
    cdef Session* s = <Session*>BIO_get_data(bio)
    cdef iovec part
    cdef ssize_t sent
    BIO_clear_retry_flags(bio)
    part.iov_base = <void*>data
    part.iov_len = size_bytes
    sent = net_send(s.fd, &part, 1, s.more)
    if sent == -EAGAIN or sent == -EINTR:
        BIO_set_retry_write(bio)
        return -1
    if sent < 0:
        s.ended = True
        return -1
    return <int>sent


cdef long _bio_ctrl(BIO* bio, int command, long _number, void* _pointer) noexcept nogil:
    if command == BIO_CTRL_EOF:
        return (<Session*>BIO_get_data(bio)).ended
    return command == BIO_CTRL_FLUSH


# ------------------------------------------------------------------ a session

cdef struct Shared:                 # the values from which a listener's sessions are made
    pthread_mutex_t lock
    SSL_CTX* context                # a new one replaces it (TlsContext.replace)

cdef BIO_METHOD* BIO_CALLS = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, b"socket")
if BIO_CALLS == NULL:
    raise MemoryError("no memory for TLS")
BIO_meth_set_read(BIO_CALLS, _bio_read)
BIO_meth_set_write(BIO_CALLS, _bio_write)
BIO_meth_set_ctrl(BIO_CALLS, _bio_ctrl)


cdef void* tls_open(void* context, int fd) noexcept nogil:
    cdef Shared* shared = <Shared*>context
    cdef Session* s = <Session*>calloc(1, sizeof(Session))
    cdef BIO* bio
    if s == NULL:
        return NULL
    pthread_mutex_lock(&shared.lock)
    s.ssl = SSL_new(shared.context)         # which keeps the context while the session lives
    pthread_mutex_unlock(&shared.lock)
    bio = BIO_new(BIO_CALLS) if s.ssl != NULL else NULL
    if bio == NULL:
        ERR_clear_error()
        SSL_free(s.ssl)
        free(s)
        return NULL
    s.fd = fd
    s.quota = HANDSHAKE_BYTES_MAX
    BIO_set_data(bio, s)
    BIO_set_init(bio, 1)
    SSL_set_bio(s.ssl, bio, bio)
    SSL_set_accept_state(s.ssl)
    return s


cdef int _failed(Session* s) noexcept nogil:
    """Stores the reason, and empties the thread's queue of errors, which must be empty before each
    call of OpenSSL."""
    cdef unsigned long error = ERR_peek_error()
    s.failed = True
    if s.reason == 0 and error:
        s.reason = <int64_t>error
    ERR_clear_error()
    return HANDSHAKE_FAILED


cdef int tls_handshake(void* session) noexcept nogil:
    cdef Session* s = <Session*>session
    cdef int done = SSL_do_handshake(s.ssl)
    cdef int error
    if done == 1:
        s.open = True
        s.buffered = SSL_has_pending(s.ssl) != 0
        SSL_set_default_read_buffer_len(s.ssl, READ_BYTES)
        return HANDSHAKE_DONE
    error = SSL_get_error(s.ssl, done)
    if s.received and s.first != HANDSHAKE_RECORD:
        s.reason = REASON_PLAINTEXT
        return _failed(s)
    if error == SSL_ERROR_WANT_READ and not s.ended:
        return HANDSHAKE_READS
    if error == SSL_ERROR_WANT_WRITE:
        return HANDSHAKE_WRITES
    if s.ended:
        _failed(s)
        return HANDSHAKE_CUT
    return _failed(s)


cdef ssize_t tls_receive(void* session, uint8_t* into, size_t size_bytes) noexcept nogil:
    """Receives as net_recv does. Returns 0 also after close_notify; -EPROTO: reason() has the cause."""
    cdef Session* s = <Session*>session
    cdef size_t total = 0
    cdef size_t got = 0
    cdef int done, error
    s.quota = TURN_BYTES
    s.buffered = s.writes = False
    if s.failed:
        return -EPROTO
    while total < size_bytes:
        done = SSL_read_ex(s.ssl, into + total, size_bytes - total, &got)
        if done == 1:
            total += got
            continue
        error = SSL_get_error(s.ssl, done)
        if error == SSL_ERROR_WANT_READ:
            s.buffered = s.ended and total      # the end is reported after the bytes before it
            return <ssize_t>total if total else 0 if s.ended else -EAGAIN
        if error == SSL_ERROR_WANT_WRITE:
            s.writes = True
            return <ssize_t>total if total else -EAGAIN
        if error != SSL_ERROR_ZERO_RETURN:
            _failed(s)
        if total:
            s.buffered = True
            return <ssize_t>total
        return 0 if error == SSL_ERROR_ZERO_RETURN else -EPROTO
    s.buffered = SSL_has_pending(s.ssl) != 0
    return <ssize_t>total


cdef size_t _gather(uint8_t* record, const uint8_t** data, const iovec* parts, int count,
                    size_t skip) noexcept nogil:
    """Collects the bytes of the next record, those after the first `skip` bytes of the parts, and
    sets `data` to them. Returns their number."""
    cdef size_t size_bytes = 0
    cdef size_t step
    cdef int i
    for i in range(count):
        if skip >= parts[i].iov_len:
            skip -= parts[i].iov_len
            continue
        step = parts[i].iov_len - skip
        if size_bytes == 0 and (step >= RECORD_BYTES or i == count - 1):
            data[0] = <const uint8_t*>parts[i].iov_base + skip
            return min(step, <size_t>RECORD_BYTES)
        step = min(step, RECORD_BYTES - size_bytes)
        memcpy(record + size_bytes, <const uint8_t*>parts[i].iov_base + skip, step)
        size_bytes += step
        skip = 0
        if size_bytes == RECORD_BYTES:
            break
    data[0] = record
    return size_bytes


cdef ssize_t tls_send(void* session, const iovec* parts, int count, int more) noexcept nogil:
    """Sends as net_send does. Returns the number of plain bytes whose records the socket has
    accepted whole."""
    cdef Session* s = <Session*>session
    cdef uint8_t record[RECORD_BYTES]
    cdef const uint8_t* data = record
    cdef size_t total = 0
    cdef size_t sent = 0
    cdef size_t offered = 0
    cdef size_t size_bytes
    cdef int done, error, i
    for i in range(count):
        offered += parts[i].iov_len
    if s.failed:
        return -EPIPE
    while total < offered and total < TURN_BYTES:
        # OpenSSL keeps the rest of a record that the socket did not accept, and uses only the size
        # then.
        size_bytes = s.held if s.held else _gather(record, &data, parts, count, total)
        s.more = more or total + size_bytes < offered
        done = SSL_write_ex(s.ssl, data, size_bytes, &sent)
        if done == 1:
            s.held = 0
            total += sent
            continue
        error = SSL_get_error(s.ssl, done)
        if error == SSL_ERROR_WANT_WRITE:
            s.held = size_bytes
            return <ssize_t>total if total else -EAGAIN
        _failed(s)
        return <ssize_t>total if total else -EPIPE
    return <ssize_t>total


cdef int tls_waits_for(void* session) noexcept nogil:
    cdef Session* s = <Session*>session
    return (TRANSPORT_BUFFERED if s.buffered else 0) | (TRANSPORT_WRITES if s.writes else 0)


cdef int64_t tls_reason(void* session) noexcept nogil:
    return (<Session*>session).reason


cdef int64_t tls_record_bytes_min(void* session, int64_t plain_bytes) noexcept nogil:
    return plain_bytes + RECORD_OVERHEAD_MIN


cdef bint tls_peer_certificate(void* session, Buffer* into) noexcept nogil:
    cdef Session* s = <Session*>session
    cdef X509* certificate = SSL_get_peer_certificate(s.ssl)
    cdef uint8_t* at = NULL
    cdef int size_bytes
    if certificate == NULL:
        return True
    size_bytes = i2d_X509(certificate, NULL)
    if size_bytes > 0 and SSL_get_verify_result(s.ssl) == X509_V_OK:
        at = buffer_reserve(into, size_bytes)
        if at != NULL:
            i2d_X509(certificate, &at)
    X509_free(certificate)
    ERR_clear_error()
    return at != NULL


cdef void tls_close(void* session) noexcept nogil:
    """Sends close_notify, unless the session failed or a record is only half sent."""
    cdef Session* s = <Session*>session
    if s.open and not s.failed and not s.ended and s.held == 0:
        s.more = 0
        SSL_shutdown(s.ssl)
    SSL_free(s.ssl)
    ERR_clear_error()
    free(s)


cdef TransportCalls CALLS
CALLS.open = tls_open
CALLS.handshake = tls_handshake
CALLS.receive = tls_receive
CALLS.send = tls_send
CALLS.waits_for = tls_waits_for
CALLS.reason = tls_reason
CALLS.record_bytes_min = tls_record_bytes_min
CALLS.peer_certificate = tls_peer_certificate
CALLS.close = tls_close


# ------------------------------------------------------------------ settings from Python

class TlsError(ValueError):
    """OpenSSL refused a key, a certificate or a setting; the text says why."""


cdef str _error(str what):
    cdef unsigned long error = ERR_get_error()
    cdef const char* text = ERR_reason_error_string(error)
    ERR_clear_error()
    return f"{what}: {(<bytes>text).decode() if text != NULL else 'not accepted by OpenSSL'}"


def library() -> str:
    """Returns the name and version of the linked library."""
    return (<bytes>OpenSSL_version(OPENSSL_VERSION)).decode()


def reason_text(int64_t reason) -> str:
    """Returns a text for the reason of a failed handshake."""
    cdef const char* text
    if reason == REASON_PLAINTEXT:
        return "the client does not speak TLS"
    if reason == REASON_TOO_LARGE:
        return f"the client sent more than {HANDSHAKE_BYTES_MAX} bytes before the end of the handshake"
    text = ERR_reason_error_string(<unsigned long>reason) if reason > 0 else NULL
    return (<bytes>text).decode() if text != NULL else "not said by OpenSSL"


cdef X509* _certificate(bytes der) except NULL:
    cdef const unsigned char* at = der
    cdef X509* found = d2i_X509(NULL, &at, len(der))
    if found == NULL:
        raise TlsError(_error("a certificate"))
    return found


def subject(bytes der not None) -> bytes:
    """Returns the subject of a certificate (DER) as DER. Raises TlsError."""
    cdef X509* certificate = _certificate(der)
    cdef unsigned char* out = NULL
    cdef int size_bytes = i2d_X509_NAME(X509_get_subject_name(certificate), &out)
    X509_free(certificate)
    if size_bytes < 0:
        raise TlsError(_error("the subject of a certificate"))
    found = <bytes>out[:size_bytes]
    OPENSSL_free(out)
    return found


def alternative_names(bytes der not None) -> list:
    """Returns the subject alternative names of a certificate (DER), each as DER (GeneralName, RFC
    5280). Raises TlsError."""
    cdef X509* certificate = _certificate(der)
    cdef GENERAL_NAMES* names = <GENERAL_NAMES*>X509_get_ext_d2i(
        certificate, NID_subject_alt_name, NULL, NULL)
    cdef unsigned char* out
    cdef int size_bytes, i
    X509_free(certificate)
    found = []
    if names == NULL:
        ERR_clear_error()
        return found
    for i in range(sk_GENERAL_NAME_num(names)):
        out = NULL
        size_bytes = i2d_GENERAL_NAME(sk_GENERAL_NAME_value(names, i), &out)
        if size_bytes > 0:
            found.append(<bytes>out[:size_bytes])
            OPENSSL_free(out)
    GENERAL_NAMES_free(names)
    return found


cdef int _password(char* into, int size_bytes, int _writing, void* password) noexcept:
    """OpenSSL's callback for the password; without it OpenSSL would ask for it on the terminal."""
    cdef bytes text
    if password == NULL:
        return -1
    text = <bytes>password
    if len(text) > size_bytes:
        return -1
    memcpy(into, <const char*>text, len(text))
    return <int>len(text)


def key_of_pem(bytes pem not None, bytes password=None) -> bytes:
    """Returns the private key of a PEM text as DER. Raises TlsError, also for a wrong password, and
    MemoryError."""
    cdef BIO* bio = BIO_new_mem_buf(<const char*>pem, <int>len(pem))
    cdef EVP_PKEY* key
    cdef unsigned char* out = NULL
    cdef int size_bytes
    if bio == NULL:
        raise MemoryError("no memory for a private key")
    key = PEM_read_bio_PrivateKey(
        bio, NULL, <void*>_password, <void*>password if password is not None else NULL)
    BIO_free(bio)
    if key == NULL:
        raise TlsError(_error("the private key, or its password"))
    size_bytes = i2d_PrivateKey(key, &out)
    EVP_PKEY_free(key)
    if size_bytes < 0:
        raise TlsError(_error("the private key"))
    found = <bytes>out[:size_bytes]
    OPENSSL_cleanse(out, size_bytes)
    OPENSSL_free(out)
    return found


def openssl_name(str suite not None) -> str | None:
    """Returns OpenSSL's name of the cipher suite with this IANA name, which Java also uses; None if
    the library does not have the suite."""
    cdef bytes text = suite.encode()
    cdef const char* name = OPENSSL_cipher_name(text)
    found = (<bytes>name).decode() if name != NULL else "(NONE)"
    if found == "(NONE)":
        return None
    return found


cdef int _set_versions(SSL_CTX* context, versions) except -1:
    cdef int lowest = TLS1_2_VERSION if "TLSv1.2" in versions else TLS1_3_VERSION
    cdef int highest = TLS1_3_VERSION if "TLSv1.3" in versions else TLS1_2_VERSION
    if lowest > highest or not SSL_CTX_set_min_proto_version(context, lowest) \
            or not SSL_CTX_set_max_proto_version(context, highest):
        raise TlsError(_error("the TLS versions"))
    return 0


cdef int _set_suites(SSL_CTX* context, tuple suites) except -1:
    """Sets the cipher suites. The caller leaves out the TLS versions that have none of them."""
    cdef bytes of_12 = ":".join(s for s in suites if not s.startswith("TLS_")).encode()
    cdef bytes of_13 = ":".join(s for s in suites if s.startswith("TLS_")).encode()
    if suites and not SSL_CTX_set_ciphersuites(context, of_13):
        raise TlsError(_error("the cipher suites of TLS 1.3"))
    if not suites:
        of_12 = b"DEFAULT:!aNULL:!PSK:!SRP"
    if of_12 and not SSL_CTX_set_cipher_list(context, of_12):
        raise TlsError(_error("the cipher suites of TLS 1.2"))
    return 0


cdef int _set_credentials(SSL_CTX* context, tuple chain, bytes key) except -1:
    cdef X509* certificate
    cdef EVP_PKEY* private
    cdef const unsigned char* at = key
    cdef int used
    if not chain:
        raise TlsError("the certificate chain is empty")
    for place, der in enumerate(chain):
        certificate = _certificate(der)
        if place == 0:
            used = SSL_CTX_use_certificate(context, certificate)
        else:
            used = SSL_CTX_add0_chain_cert(context, certificate)
        if place == 0 or not used:
            X509_free(certificate)
        if not used:
            raise TlsError(_error("a certificate of the chain"))
    private = d2i_AutoPrivateKey(NULL, &at, len(key))
    if private == NULL:
        raise TlsError(_error("the private key"))
    used = SSL_CTX_use_PrivateKey(context, private)
    EVP_PKEY_free(private)
    if not used or not SSL_CTX_check_private_key(context):
        raise TlsError(_error("the private key and the certificate"))
    return 0


cdef int _set_trust(SSL_CTX* context, tuple trusted, int client_auth) except -1:
    cdef X509_STORE* store = SSL_CTX_get_cert_store(context)
    cdef X509* certificate
    if client_auth == 0:
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL)
        return 0
    if not trusted:
        raise TlsError("clients show certificates, and none is trusted")
    X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN)  # as Java: each entry is an anchor
    for der in trusted:
        certificate = _certificate(der)
        if not X509_STORE_add_cert(store, certificate) \
                or not SSL_CTX_add_client_CA(context, certificate):
            X509_free(certificate)
            raise TlsError(_error("a trusted certificate"))
        X509_free(certificate)
    SSL_CTX_set_verify(
        context,
        SSL_VERIFY_PEER | (SSL_VERIFY_FAIL_IF_NO_PEER_CERT if client_auth == REQUIRED else 0), NULL)
    return 0


cdef class TlsContext(Transport):
    """The certificate, key and rules of one listener. A connection keeps those with which it began.

    `chain`: certificates in DER, the listener's own first, then those up to its authority; `key`:
    DER; `trusted`: DER of the certificates at which clients' chains must end; `client_auth`: 0,
    REQUESTED or REQUIRED; `suites`: OpenSSL's names, (): its defaults. Raises TlsError.
    """
    cdef Shared _shared
    cdef readonly tuple chain
    cdef readonly tuple trusted

    def __cinit__(self, *_args, **_named):
        pthread_mutex_init(&self._shared.lock, NULL)
        self.declare(&CALLS, &self._shared)

    def __init__(self, *, tuple chain not None, bytes key not None, tuple trusted=(),
                 int client_auth=0, versions=("TLSv1.2", "TLSv1.3"), tuple suites=(),
                 bytes name=b""):
        cdef SSL_CTX* context = SSL_CTX_new(TLS_server_method())
        if context == NULL:
            raise TlsError(_error("TLS"))
        self._shared.context = context          # freed with this object, however this ends
        self.chain, self.trusted = chain, trusted
        SSL_CTX_set_options(
            context,
            SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE)
        SSL_CTX_set_mode(
            context,
            SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
            | SSL_MODE_RELEASE_BUFFERS)
        # Sessions are resumed only by tickets, so that the broker needs no memory for them.
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF)
        SSL_CTX_set_session_id_context(context, name[:32], <unsigned int>len(name[:32]))
        SSL_CTX_set_num_tickets(context, 1)
        SSL_CTX_set_read_ahead(context, 1)
        SSL_CTX_set_dh_auto(context, 1)
        _set_versions(context, versions)
        _set_suites(context, suites)
        _set_credentials(context, chain, key)
        _set_trust(context, trusted, client_auth)

    def replace(self, TlsContext other not None) -> None:
        """Exchanges certificate, key and rules with `other`: new connections use those of `other`."""
        pthread_mutex_lock(&self._shared.lock)
        self._shared.context, other._shared.context = other._shared.context, self._shared.context
        pthread_mutex_unlock(&self._shared.lock)
        self.chain, other.chain = other.chain, self.chain
        self.trusted, other.trusted = other.trusted, self.trusted

    def __dealloc__(self):
        # The reactor keeps this object while its threads may open a session.
        SSL_CTX_free(self._shared.context)
        pthread_mutex_destroy(&self._shared.lock)
