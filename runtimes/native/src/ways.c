#include "ways.h"

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
} KINDS[WAYS] = {
    /* Of commands as many as `src/sandbox/access.ts` says. */
    [EXEC] = {"exec", 32, "commands"},
    [DIAL] = {"dial", 256, "connections to ports"},
    [FILES] = {"files", 64, "files and directories"},
};

enum way way_of(const char *name)
{
    int way = 0;
    while (way < WAYS && strcmp(KINDS[way].name, name) != 0)
        way++;
    return (enum way)way;
}

int most_open(enum way way)
{
    return KINDS[way].most;
}

const char *words_of(enum way way)
{
    return KINDS[way].words;
}

/*
 * A full memory ends this process, which filled it (a file in /tmp), and not the agent. The file is root's, as which this process still runs: it is
 * closed to others as init is, and to open it to the user for this would let whoever is as fast as that keep its memory. Where the file is not
 * there, or its root is outside of the namespace of users, the kernel chooses.
 */
static void be_the_first_to_die(void)
{
    write_to("/proc/self/oom_score_adj", "1000");
}

/* A process that ends without a word would look like the end of the sandbox. */
_Noreturn static void refuse_way(int connection, const char *what, int number)
{
    refuse(connection, "unavailable", "the sandbox cannot be entered: %s: %s", what, reason_of(number));
    _exit(1);
}

_Noreturn void serve_way(int connection, const struct sandbox *sandbox, enum way way)
{
    static struct buffer held;
    struct json request;
    if (!keep_only(connection))
        refuse_way(connection, "it cannot be prepared", errno);
    reset_signals();
    /* A reader that has left is an error of the write, which then undoes its beginning. */
    signal(SIGPIPE, SIG_IGN);
    setsid();
    umask(022);
    be_the_first_to_die();
    if (!become_user(sandbox))
        refuse_way(connection, "its user cannot be taken on", errno);
    /* It runs with the rights of the user, and is still not the user's to look into, whatever a change of ids means on this machine. */
    close_to_others();
    set_timeout(connection, REQUEST_SECONDS);
    if (!read_message(connection, LARGEST_FRAME, &held, &request)) {
        refuse(connection, "internal", "the request to the sandbox is none: a JSON object was expected");
        _exit(1);
    }
    enter_directory(sandbox->working_dir);
    if (way == EXEC)
        serve_stream(connection, sandbox, &request);
    if (way == DIAL)
        serve_dial(connection, &request);
    serve_files(connection, &request);
}
