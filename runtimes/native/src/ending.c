#include "ending.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "json.h"
#include "moment.h"

static const char *const NAMES[] = {
    [SIGHUP] = "SIGHUP",   [SIGINT] = "SIGINT",   [SIGQUIT] = "SIGQUIT", [SIGILL] = "SIGILL",       [SIGTRAP] = "SIGTRAP",
    [SIGABRT] = "SIGABRT", [SIGBUS] = "SIGBUS",   [SIGFPE] = "SIGFPE",   [SIGKILL] = "SIGKILL",     [SIGUSR1] = "SIGUSR1",
    [SIGSEGV] = "SIGSEGV", [SIGUSR2] = "SIGUSR2", [SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM",     [SIGTERM] = "SIGTERM",
    [SIGSTKFLT] = "SIGSTKFLT", [SIGCHLD] = "SIGCHLD", [SIGCONT] = "SIGCONT", [SIGSTOP] = "SIGSTOP", [SIGTSTP] = "SIGTSTP",
    [SIGTTIN] = "SIGTTIN", [SIGTTOU] = "SIGTTOU", [SIGURG] = "SIGURG",   [SIGXCPU] = "SIGXCPU",     [SIGXFSZ] = "SIGXFSZ",
    [SIGVTALRM] = "SIGVTALRM", [SIGPROF] = "SIGPROF", [SIGWINCH] = "SIGWINCH", [SIGIO] = "SIGIO",   [SIGPWR] = "SIGPWR",
    [SIGSYS] = "SIGSYS",
};
enum { NAMED = sizeof NAMES / sizeof *NAMES, FIRST_REAL_TIME = 34, LAST_REAL_TIME = 64, LARGEST_FILE = 4096 };

static void write_signal(struct buffer *target, int number)
{
    if (number > 0 && number < NAMED && NAMES[number] != NULL)
        buffer_format(target, "\"%s\"", NAMES[number]);
    else if (number == FIRST_REAL_TIME || number == LAST_REAL_TIME)
        buffer_format(target, number == FIRST_REAL_TIME ? "\"SIGRTMIN\"" : "\"SIGRTMAX\"");
    else
        buffer_format(target, "\"SIGRT%d\"", number);
}

/* Killed by SIGKILL: the process itself or, by the shell's convention, its child. */
static bool is_killed(int status)
{
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 128 + SIGKILL;
}

/* True if the kernel has killed a process inside because memory was exhausted. */
static bool has_killed(int descriptor)
{
    char text[LARGEST_FILE];
    ssize_t count = descriptor < 0 ? 0 : pread(descriptor, text, sizeof text - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "oom_kill ", 9) == 0)
            return atol(line + 9) > 0;
    }
    return false;
}

void write_ending(struct buffer *target, const struct sandbox *sandbox, int status, const char *cause)
{
    if (WIFSIGNALED(status)) {
        buffer_format(target, "{\"code\":null,\"signal\":");
        write_signal(target, WTERMSIG(status));
    } else {
        buffer_format(target, "{\"code\":%d,\"signal\":null", WEXITSTATUS(status));
    }
    bool is_out_of_memory = is_killed(status) && has_killed(sandbox->oom_kills);
    buffer_format(target, ",\"oomKilled\":%s,\"atMs\":%lld", is_out_of_memory ? "true" : "false", now_ms());
    if (cause != NULL) {
        buffer_format(target, ",\"cause\":");
        json_write_bytes(target, cause);
    }
    buffer_add(target, "}", 1);
}
