#include "moment.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_MS = 86400000 };

static long long read_us(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (long long)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

long long now_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}

long long monotonic_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

long long monotonic_ms(void)
{
    return monotonic_us() / 1000;
}

long long after_ms(double milliseconds)
{
    return monotonic_ms() + (milliseconds < 1e15 ? (long long)milliseconds : (long long)1e15);
}

int remaining_ms(long long deadline)
{
    if (deadline == NEVER)
        return -1;
    long long left = deadline - monotonic_ms();
    return left < 0 ? 0 : left < LONGEST_MS ? (int)left + 1 : LONGEST_MS;
}

bool has_passed(long long deadline)
{
    return deadline != NEVER && monotonic_ms() >= deadline;
}

int watch_children(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    return signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
}

void drain_signals(int watch)
{
    struct signalfd_siginfo ignored;
    while (read(watch, &ignored, sizeof ignored) > 0)
        ;
}
