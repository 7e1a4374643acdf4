/* What /proc tells about processes. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct process {
    pid_t pid;
    pid_t parent;
};

/* All that can be seen, to be freed. */
struct process *processes(size_t *count);
/* Those below `root`, parents before their children, to be freed. */
pid_t *descendants(pid_t root, size_t *count);
/* What these use together; those that have gone count nothing. */
void usage_of(const pid_t *pids, size_t count, double *memory_bytes, double *cpu_micros, size_t *alive);
/* Everything inside but this process; returns when it is gone. `has_pid`: this is the first process of a pid namespace. */
void kill_all(bool has_pid);

#endif
