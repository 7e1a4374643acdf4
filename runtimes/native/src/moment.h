/* Clocks and deadlines. */
#ifndef MOMENT_H
#define MOMENT_H

#include <stdbool.h>

/* A deadline that never passes. */
#define NEVER (-1LL)

/* The wall clock. */
long long now_ms(void);
/* A clock that is never set. */
long long monotonic_ms(void);
long long monotonic_us(void);
/* Returns the deadline in so many milliseconds. Large values do not overflow. */
long long after_ms(double milliseconds);
/* Returns the time until then as `poll` expects it. */
int remaining_ms(long long deadline);
bool has_passed(long long deadline);
/*
 * Returns a descriptor that is readable when a child has ended. SIGCHLD has no other effect afterwards. -1 on
 * failure.
 */
int watch_children(void);
void drain_signals(int watch);

#endif
