#include "groups.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "reason.h"

enum {
    MICROS_PER_PERIOD = 100000,
    /* The kernel accepts no quota below 1 ms, so small shares use the longest period. */
    LONGEST_PERIOD = 1000000,
    SMALLEST_USUAL_SHARE = 10,
    VALUE = 64,
};

/* In the order of writing. Kernels without swap accounting lack the swap files. */
static const struct {
    const char *controller;
    int version;
    const char *files[2], *oom_kills;
} LIMITS[] = {
    {"memory", 1, {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}, "memory.oom_control"},
    {"cpu", 1, {"cpu.cfs_period_us", "cpu.cfs_quota_us"}, NULL},
    {"pids", 1, {"pids.max"}, NULL},
    {"memory", 2, {"memory.max", "memory.swap.max"}, "memory.events"},
    {"cpu", 2, {"cpu.max"}, NULL},
    {"pids", 2, {"pids.max"}, NULL},
};

static int open_in(const struct json *group, const char *name, const char *file, int flags)
{
    char path[PATH_MAX];
    if (file == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/%s/%s", json_text(group, "parent"), name, file);
    return open(path, flags | O_CLOEXEC);
}

void add_limit_files(struct buffer *told, const struct json *groups, const char *name)
{
    int oom_kills = -1;
    const char *comma = "";
    buffer_format(told, ",\"limits\":[");
    for (size_t index = 0; index < groups->count; index++) {
        const struct json *group = &groups->items[index];
        for (size_t row = 0; row < sizeof LIMITS / sizeof *LIMITS; row++) {
            if (strcmp(json_text(group, "controller"), LIMITS[row].controller) != 0 ||
                (int)json_number(group, "version") != LIMITS[row].version)
                continue;
            for (int which = 0; which < 2; which++) {
                int file = open_in(group, name, LIMITS[row].files[which], O_WRONLY);
                if (file < 0)
                    continue;
                buffer_format(told, "%s{\"name\":\"%s\",\"file\":%d}", comma, LIMITS[row].files[which], file);
                comma = ",";
            }
            if (LIMITS[row].oom_kills != NULL)
                oom_kills = open_in(group, name, LIMITS[row].oom_kills, O_RDONLY);
        }
    }
    buffer_format(told, "],\"oomKills\":%d", oom_kills);
}

static bool is_file(const char *name, const char *other)
{
    return strcmp(name, other) == 0;
}

static void write_value(char value[VALUE], const char *name, const struct json *request)
{
    long long cpu = (long long)json_number(request, "cpuMillis");
    long long period = cpu >= SMALLEST_USUAL_SHARE ? MICROS_PER_PERIOD : LONGEST_PERIOD;
    long long quota = period * cpu / 1000;
    if (is_file(name, "memory.swap.max"))
        snprintf(value, VALUE, "0");
    else if (strncmp(name, "memory", 6) == 0)
        snprintf(value, VALUE, "%lld", (long long)json_number(request, "memoryMb") * 1024 * 1024);
    else if (is_file(name, "pids.max"))
        /* Init is one more process. */
        snprintf(value, VALUE, "%lld", (long long)json_number(request, "maxProcesses") + 1);
    else if (is_file(name, "cpu.cfs_period_us"))
        snprintf(value, VALUE, "%lld", period);
    else if (is_file(name, "cpu.cfs_quota_us"))
        snprintf(value, VALUE, "%lld", quota);
    else
        snprintf(value, VALUE, "%lld %lld", quota, period);
}

void write_limits(const struct json *limits, const struct json *request, void (*refused)(const char *, const char *, const char *))
{
    for (size_t index = 0; index < limits->count; index++) {
        const char *name = json_text(&limits->items[index], "name");
        int descriptor = (int)json_number(&limits->items[index], "file");
        char value[VALUE];
        write_value(value, name, request);
        /* Some machines do not account swap. */
        if (write(descriptor, value, strlen(value)) < 0 && strstr(name, "swap") == NULL && strstr(name, "memsw") == NULL)
            refused(name, value, reason_of(errno));
        close(descriptor);
    }
}
