/* Moments and waits. */
#ifndef MOMENT_H
#define MOMENT_H

#include <stdbool.h>

/* A moment that does not come. */
#define NEVER (-1LL)

/* Of the calendar. */
long long now_ms(void);
/* Of a clock that nobody sets. */
long long monotonic_ms(void);
long long monotonic_us(void);
/* The moment after so many milliseconds, also when that is more than a clock can hold. */
long long after_ms(double milliseconds);
/* What `poll` may wait until then. */
int left_ms(long long deadline);
bool is_over(long long deadline);
/* Readable when a child has ended: SIGCHLD does nothing else from here on. Fails with -1. */
int watch_children(void);
void forget_signals(int watch);

#endif
