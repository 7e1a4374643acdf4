#include "groups.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "reason.h"

enum {
    MICROS_PER_PERIOD = 100000,
    /* The kernel takes no quota below 1 ms, so small shares get the longest period that it allows. */
    LONGEST_PERIOD = 1000000,
    SMALLEST_USUAL_SHARE = 10,
    VALUE = 64,
};

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
        /* One more for init. */
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
        /* Swap is not counted everywhere. */
        if (write(descriptor, value, strlen(value)) < 0 && strstr(name, "swap") == NULL && strstr(name, "memsw") == NULL)
            refused(name, value, reason_of(errno));
        close(descriptor);
    }
}
