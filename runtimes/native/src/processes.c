#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buffer.h"
#include "moment.h"

enum {
    LARGEST_FILE = 1024,
    /* The most rounds of killing without a pid namespace. */
    KILL_MS = 5000,
    /* The longest pause between two rounds; pauses double up to it. */
    LONGEST_PAUSE_MS = 32,
};

/* Reads a file and adds a NUL. Returns false if the process is gone. */
static bool read_of(pid_t pid, const char *name, char text[LARGEST_FILE])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    ssize_t count = read(descriptor, text, LARGEST_FILE - 1);
    close(descriptor);
    text[count > 0 ? count : 0] = '\0';
    return count > 0;
}

/* Returns the fields of `stat` after the name, which may contain any character. */
static const char *fields_of(pid_t pid, char text[LARGEST_FILE])
{
    char *end = read_of(pid, "stat", text) ? strrchr(text, ')') : NULL;
    return end == NULL ? NULL : end + 1;
}

struct process *processes(size_t *count)
{
    struct process *found = NULL;
    char text[LARGEST_FILE];
    *count = 0;
    DIR *directory = opendir("/proc");
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        const char *fields = pid > 0 ? fields_of(pid, text) : NULL;
        int parent;
        if (fields == NULL || sscanf(fields, " %*c %d", &parent) != 1)
            continue;
        if ((*count & (*count - 1)) == 0)
            found = reallocate(found, (*count ? *count * 2 : 1) * sizeof *found);
        found[(*count)++] = (struct process){pid, (pid_t)parent};
    }
    if (directory != NULL)
        closedir(directory);
    return found;
}

pid_t *descendants(pid_t root, size_t *count)
{
    size_t total, looked_at = 0;
    struct process *all = processes(&total);
    pid_t *found = allocate(total * sizeof *found);
    *count = 0;
    for (pid_t parent = root;; parent = found[looked_at++]) {
        for (size_t index = 0; index < total; index++) {
            if (all[index].parent != parent || all[index].pid == root)
                continue;
            found[(*count)++] = all[index].pid;
            /* A pid that is reused while this reads could be its own ancestor. */
            all[index].parent = -1;
        }
        if (looked_at == *count)
            break;
    }
    free(all);
    return found;
}

void usage_of(const pid_t *pids, size_t count, double *memory_bytes, double *cpu_micros, size_t *alive)
{
    double page = (double)sysconf(_SC_PAGESIZE), second = (double)sysconf(_SC_CLK_TCK);
    char text[LARGEST_FILE];
    *memory_bytes = *cpu_micros = 0;
    *alive = 0;
    for (size_t index = 0; index < count; index++) {
        unsigned long resident, shared, ticks[4];
        if (!read_of(pids[index], "statm", text) || sscanf(text, "%*u %lu %lu", &resident, &shared) != 2)
            continue;
        const char *fields = fields_of(pids[index], text);
        if (fields == NULL || sscanf(fields, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu", &ticks[0], &ticks[1],
                                     &ticks[2], &ticks[3]) != 4)
            continue;
        *memory_bytes += (double)(resident - shared) * page;
        *cpu_micros += (double)(ticks[0] + ticks[1] + ticks[2] + ticks[3]) * 1e6 / second;
        *alive += 1;
    }
}

static void reap_all(int options)
{
    pid_t pid;
    do
        pid = waitpid(-1, NULL, options);
    while (pid > 0 || (pid < 0 && errno == EINTR));
}

void kill_all(bool has_pid)
{
    if (has_pid) {
        kill(-1, SIGKILL);
        reap_all(0);
        return;
    }
    int pause_ms = 1;
    for (long long end = after_ms(KILL_MS); !has_passed(end);) {
        size_t count;
        pid_t *left = descendants(getpid(), &count);
        /* Parents first: the server of an access must not report the end of its command. */
        for (size_t index = 0; index < count; index++)
            kill(left[index], SIGKILL);
        free(left);
        reap_all(WNOHANG);
        if (count == 0)
            return;
        /* A process ends shortly after its signal, and later if it is in a system call. */
        poll(NULL, 0, pause_ms);
        pause_ms = pause_ms < LONGEST_PAUSE_MS ? 2 * pause_ms : LONGEST_PAUSE_MS;
    }
}
