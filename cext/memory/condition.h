/* pthread conditions whose deadlines are on CLOCK_MONOTONIC, which no administrator can move. */
#ifndef BARNABAS_CONDITION_H
#define BARNABAS_CONDITION_H
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline int condition_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes;
    int status;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    status = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return status;
}

static inline int condition_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns) {
    struct timespec at = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    return pthread_cond_timedwait(cond, mutex, &at) != ETIMEDOUT;
}

static inline int64_t monotonic_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif
