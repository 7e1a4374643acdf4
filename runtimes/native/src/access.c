#include "access.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frames.h"
#include "kernel.h"
#include "program.h"
#include "reason.h"
#include "rights.h"

enum { REQUEST_SECONDS = 10 };

static const struct {
    const char *name;
    int most;
    const char *words;
} KINDS[ACCESS_KINDS] = {
    /* The limit of commands is also in `src/sandbox/access.ts`. */
    [EXEC] = {"exec", 32, "commands"},
    [DIAL] = {"dial", 256, "connections to ports"},
    [FILES] = {"files", 64, "files and directories"},
};

enum access_kind access_kind_of(const char *name)
{
    int kind = 0;
    while (kind < ACCESS_KINDS && strcmp(KINDS[kind].name, name) != 0)
        kind++;
    return (enum access_kind)kind;
}

int most_accesses(enum access_kind kind)
{
    return KINDS[kind].most;
}

const char *plural_of(enum access_kind kind)
{
    return KINDS[kind].words;
}

/*
 * Memory may be exhausted by files in /tmp. The file is closed to the user, because opening it would let a
 * fast process inside read this memory. If the file is missing, or belongs to an outer user namespace, the
 * kernel chooses.
 */
void prefer_as_oom_victim(void)
{
    write_to("/proc/self/oom_score_adj", "1000");
}

/* Refuses the access. Otherwise the caller would take the closed connection for the end of the sandbox. */
_Noreturn static void refuse_access(int connection, const char *what, int number)
{
    refuse(connection, "unavailable", "the sandbox cannot be entered: %s: %s", what, reason_of(number));
    _exit(1);
}

_Noreturn void serve_access(int connection, const struct sandbox *sandbox, enum access_kind kind)
{
    static struct buffer held;
    struct json request;
    if (!keep_only(connection))
        refuse_access(connection, "its descriptors cannot be opened", errno);
    reset_signals();
    /* A write to a closed connection then fails with an error, so that the operation can be undone. */
    signal(SIGPIPE, SIG_IGN);
    setsid();
    umask(022);
    prefer_as_oom_victim();
    if (!become_user(sandbox))
        refuse_access(connection, "changing to its user failed", errno);
    /*
     * The process runs with the rights of the user, but the user must not inspect it, whatever a change of
     * ids allows on this machine.
     */
    forbid_inspection();
    set_timeout(connection, REQUEST_SECONDS);
    if (!read_message(connection, LARGEST_FRAME, &held, &request)) {
        refuse(connection, "internal", "the request to the sandbox must be a JSON object");
        _exit(1);
    }
    enter_directory(sandbox->working_dir);
    if (kind == EXEC)
        serve_stream(connection, sandbox, &request);
    if (kind == DIAL)
        serve_dial(connection, &request);
    serve_files(connection, &request);
}
