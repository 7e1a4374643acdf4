#include "ways.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frames.h"
#include "program.h"
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

/* A full memory ends this process, which filled it (a file in /tmp), and not the agent. */
static void be_the_first_to_die(void)
{
    /* The file is the user's as long as the process is. Where there is none, the kernel chooses. */
    prctl(PR_SET_DUMPABLE, 1);
    int adjustment = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adjustment >= 0) {
        (void)!write(adjustment, "1000", 4);
        close(adjustment);
    }
    /* It runs with the rights of the user, and is still not the user's to look into. */
    close_to_others();
}

_Noreturn void serve_way(int connection, const struct sandbox *sandbox, enum way way)
{
    static struct buffer held;
    struct json request;
    keep_only(connection);
    reset_signals();
    /* A reader that has left is an error of the write, which then undoes its beginning. */
    signal(SIGPIPE, SIG_IGN);
    setsid();
    umask(022);
    if (!become_user(sandbox))
        _exit(1);
    be_the_first_to_die();
    set_timeout(connection, REQUEST_SECONDS);
    if (!read_message(connection, LARGEST_FRAME, &held, &request))
        _exit(1);
    enter_directory(sandbox->working_dir);
    if (way == EXEC)
        serve_stream(connection, sandbox, &request);
    if (way == DIAL)
        serve_dial(connection, &request);
    serve_files(connection, &request);
}
