#include "worker.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buffer.h"
#include "kernel.h"

enum { CHUNK = 16384 };

/* The title space that `runtimes/native/fork` reserves. */
static const char TITLE_ROOM[] = "rookery: worker                                                                                 ";

#define FIELD(name, field) {name, offsetof(struct worker, field)}

static const struct {
    const char *name;
    size_t field;
} DESCRIPTORS[] = {
    FIELD("control", control),
    FIELD("workers", workers),
    FIELD("instances", instances),
    FIELD("sockets", sockets),
    FIELD("runtimeListener", runtime_listener),
    FIELD("orders", orders),
    FIELD("limitsNamespace", limits_namespace),
    FIELD("program", program),
    FIELD("directory", sandbox.directory),
    FIELD("listener", sandbox.listener),
    FIELD("output", sandbox.output),
    FIELD("connection", sandbox.connection),
    FIELD("oomKills", sandbox.oom_kills),
    FIELD("networkTie", sandbox.network_tie),
    FIELD("networkWords", sandbox.network_words),
};
enum { DESCRIPTOR_COUNT = sizeof DESCRIPTORS / sizeof *DESCRIPTORS };

static int *descriptor_at(const struct worker *worker, int index)
{
    return (int *)((char *)worker + DESCRIPTORS[index].field);
}

/* Reads a whole file, and closes it. */
static bool read_whole(int descriptor, struct buffer *text)
{
    ssize_t count;
    lseek(descriptor, 0, SEEK_SET);
    while ((count = read(descriptor, buffer_room(text, CHUNK), CHUNK - 1)) > 0)
        text->size += (size_t)count;
    close(descriptor);
    return count == 0;
}

bool read_object(struct json *facts, int descriptor)
{
    static struct buffer held;
    return read_whole(descriptor, &held) && json_read(facts, held.data, held.size) && facts->kind == JSON_OBJECT;
}

bool worker_read(struct worker *worker, int descriptor)
{
    static struct buffer held;
    return read_whole(descriptor, &held) && worker_read_from(worker, &held);
}

bool worker_read_from(struct worker *worker, struct buffer *told)
{
    static struct json facts;
    struct sandbox *sandbox = &worker->sandbox;
    if (!json_read(&facts, told->data, told->size) || facts.kind != JSON_OBJECT)
        return false;
    worker->facts = &facts;
    for (int index = 0; index < DESCRIPTOR_COUNT; index++) {
        const struct json *found = json_get(&facts, DESCRIPTORS[index].name);
        *descriptor_at(worker, index) = found->kind == JSON_NUMBER ? (int)found->number : -1;
        fcntl(*descriptor_at(worker, index), F_SETFD, FD_CLOEXEC);
    }
    const struct json *limits = json_get(&facts, "limits");
    for (size_t index = 0; index < limits->count; index++)
        fcntl((int)json_number(&limits->items[index], "file"), F_SETFD, FD_CLOEXEC);
    sandbox->sets_ids = json_is_true(&facts, "setsIds");
    sandbox->has_pid = json_is_true(&facts, "hasPid");
    sandbox->has_user = json_is_true(&facts, "hasUser");
    sandbox->has_capabilities = json_is_true(&facts, "hasCapabilities");
    sandbox->has_memory_group = json_is_true(&facts, "hasMemoryGroup");
    sandbox->has_pids_group = json_is_true(&facts, "hasPidsGroup");
    sandbox->accounts_namespace = -1;
    sandbox->user = (pid_t)json_number(&facts, "user");
    sandbox->log_bytes = (size_t)json_number(&facts, "logBytes");
    sandbox->log_files = (int)json_number(&facts, "logFiles");
    return sandbox->user > 0 && sandbox->directory >= 0 && worker->orders >= 0;
}

void execute_again(const struct worker *worker, const struct buffer *facts)
{
    char number[16], *arguments[] = {(char *)TITLE_ROOM, number, NULL}, *environment[] = {NULL};
    int descriptor = memfd_create("rookery-init", 0);
    if (descriptor < 0 || write(descriptor, facts->data, facts->size) != (ssize_t)facts->size)
        return;
    snprintf(number, sizeof number, "%d", descriptor);
    for (int index = 0; index < DESCRIPTOR_COUNT; index++) {
        if (*descriptor_at(worker, index) >= 0)
            fcntl(*descriptor_at(worker, index), F_SETFD, 0);
    }
    fexecve(worker->program, arguments, environment);
}

int take_connection(int control)
{
    char asked;
    int connection;
    return receive_with(control, &asked, sizeof asked, &connection, 1) == 1 ? connection : -1;
}

static int hex_digit(char digit)
{
    return digit >= 'a' ? digit - 'a' + 10 : digit - '0';
}

bool filter_as_told(const struct json *facts, const char *name)
{
    const struct json *digits = json_get(facts, name);
    if (digits->kind != JSON_STRING)
        return true;
    char *bytes = allocate(digits->size / 2);
    for (size_t index = 0; index + 1 < digits->size; index += 2)
        bytes[index / 2] = (char)(hex_digit(digits->text[index]) * 16 + hex_digit(digits->text[index + 1]));
    bool is_filtered = filter_calls(bytes, digits->size / 2);
    free(bytes);
    return is_filtered;
}
