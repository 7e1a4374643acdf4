/* Reads processes from /proc. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct process {
    pid_t pid;
    pid_t parent;
};

/* Returns all visible processes. The caller frees the list. */
struct process *processes(size_t *count);
/* Returns the processes below `root`, parents before children. The caller frees the list. */
pid_t *descendants(pid_t root, size_t *count);
/* Adds up the usage of these processes. Ended ones count as zero. */
void usage_of(const pid_t *pids, size_t count, double *memory_bytes, double *cpu_micros, size_t *alive);
/*
 * Kills all processes inside except this one, and waits for their end. `has_pid`: this is the first process
 * of a pid namespace.
 */
void kill_all(bool has_pid);

#endif
