#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "buffer.h"
#include "reason.h"

enum { CANNOT_RUN = 127, MOST_DESCRIPTORS = 4096, SYS_CLOSE_RANGE = 436 };

static const char DEFAULT_PATH[] = "/bin:/usr/bin";
static const char CANNOT_RUN_WORDS[] = "the command cannot be run: ";

void reset_signals(void)
{
    static const int numbers[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGXFSZ};
    sigset_t none;
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++)
        signal(numbers[index], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void close_range_of(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_CLOSE_RANGE, first, last, 0) == 0)
        return;
    /* For kernels before 5.9. An init has few descriptors, but its limit may be high. */
    for (unsigned descriptor = first; descriptor <= last && descriptor < MOST_DESCRIPTORS; descriptor++)
        close((int)descriptor);
}

bool keep_only(int connection, int other)
{
    unsigned first = (unsigned)(other >= 0 && other < connection ? other : connection);
    unsigned last = (unsigned)(other > connection ? other : connection);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0)
        return false;
    for (int number = 0; number < 3; number++)
        dup2(nothing, number);
    close_range_of(3, first - 1);
    close_range_of(first + 1, last - 1);
    close_range_of(last + 1, UINT_MAX);
    return true;
}

/* Ends a child whose memory is exhausted too, so it allocates nothing. */
_Noreturn void fail_to_run(const char *reason)
{
    struct iovec parts[] = {
        {(char *)CANNOT_RUN_WORDS, sizeof CANNOT_RUN_WORDS - 1}, {(char *)reason, strlen(reason)}, {"\n", 1}};
    /* If the line cannot be written, the exit code alone reports the failure. */
    (void)!writev(2, parts, sizeof parts / sizeof *parts);
    _exit(CANNOT_RUN);
}

static void end_without_memory(void)
{
    fail_to_run(reason_of(ENOMEM));
}

static void begin_session(const int standard[3])
{
    on_out_of_memory = end_without_memory;
    reset_signals();
    setsid();
    umask(022);
    /* All three are above 2, because 0 to 2 are always open here. */
    for (int number = 0; number < 3; number++)
        dup2(standard[number], number);
}

void detach(const int standard[3])
{
    begin_session(standard);
    close_range_of(3, UINT_MAX);
}

int detach_with(const int standard[3], int report)
{
    begin_session(standard);
    dup3(report, 3, O_CLOEXEC);
    close_range_of(4, UINT_MAX);
    return 3;
}

void enter_directory(const char *path)
{
    /* The root of a process is always a directory. If it cannot be entered, the directory stays unchanged. */
    if (chdir(path) < 0 && chdir("/") < 0)
        return;
}

/* Where to report a failure, or 0. */
static int failure_report;

_Noreturn static void report_failure(const struct buffer *sentence)
{
    (void)!send(failure_report, sentence->data, sentence->size, MSG_NOSIGNAL);
    _exit(CANNOT_RUN);
}

_Noreturn static void fail(const char *what, const char *where, const char *reason)
{
    struct buffer line = {0};
    if (failure_report > 0) {
        /* A program's name may be a whole script. */
        buffer_format(&line, "cannot run %.200s%s%s: %s", what, where ? " in " : "", where ? where : "", reason);
        report_failure(&line);
    }
    buffer_format(&line, "cannot run %s%s%s: %s\n", what, where ? " in " : "", where ? where : "", reason);
    for (size_t done = 0; done < line.size;) {
        ssize_t count = write(2, line.data + done, line.size - done);
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    _exit(CANNOT_RUN);
}

static const char *const NO_TEXT = "a text that cannot be passed to a program";

static char *bytes_of(const struct json *text, const char *what)
{
    if (json_has_nul(text))
        fail(what, NULL, "embedded null byte");
    char *bytes = json_bytes(text);
    if (bytes == NULL)
        fail(what, NULL, NO_TEXT);
    return bytes;
}

/* True if one of the lists from `first` on has the name. */
static bool is_set_from(const struct program *program, int first, const char *name)
{
    for (int list = first; list < ENVIRONMENTS; list++) {
        if (program->env[list] != NULL && json_get(program->env[list], name)->kind == JSON_STRING)
            return true;
    }
    return false;
}

static const char *value_in(char **environment, const char *name)
{
    size_t size = strlen(name);
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
            return *environment + size + 1;
    }
    return NULL;
}

static char **environment_of(const struct program *program, const char *what)
{
    /* Names and values alternate: half the items are variables. TERM, the second PATH and a NULL follow. */
    size_t items = 6, count = 0;
    for (int list = 0; list < ENVIRONMENTS; list++)
        items += program->env[list] == NULL ? 0 : program->env[list]->count;
    char **made = allocate(items / 2 * sizeof *made);
    for (int list = 0; list < ENVIRONMENTS; list++) {
        const struct json *env = program->env[list];
        for (size_t index = 0; env != NULL && index + 1 < env->count; index += 2) {
            const struct json *name = &env->items[index];
            if (is_set_from(program, list + 1, name->text))
                continue;
            struct buffer entry = {0};
            char *name_bytes = bytes_of(name, what), *value_bytes = bytes_of(&env->items[index + 1], what);
            buffer_format(&entry, "%s=%s", name_bytes, value_bytes);
            free(name_bytes);
            free(value_bytes);
            made[count++] = entry.data;
        }
    }
    if (program->term != NULL && !is_set_from(program, 0, "TERM"))
        made[count++] = (char *)program->term;
    made[count] = NULL;
    const char *path = program->keeps_path ? value_in(made, "PATH") : NULL;
    if (path != NULL) {
        struct buffer entry = {0};
        buffer_format(&entry, "ROOKERY_PATH=%s", path);
        made[count++] = entry.data;
        made[count] = NULL;
    }
    return made;
}

/* Like execvpe, with the PATH of `environment`. Returns the errno of the failure. */
static int execute(char **argv, char **environment)
{
    if (strchr(argv[0], '/') != NULL) {
        execve(argv[0], argv, environment);
        return errno;
    }
    const char *path = value_in(environment, "PATH");
    int last = ENOENT, other = 0;
    for (path = path ? path : DEFAULT_PATH;; path++) {
        size_t size = strcspn(path, ":");
        struct buffer file = {0};
        buffer_format(&file, "%.*s%s%s", (int)size, path, size ? "/" : "", argv[0]);
        execve(file.data, argv, environment);
        last = errno;
        if (last != ENOENT && last != ENOTDIR && other == 0)
            other = last;
        buffer_free(&file);
        path += size;
        if (*path == '\0')
            return other ? other : last;
    }
}

_Noreturn void run_program(const struct program *program)
{
    failure_report = program->report;
    enter_directory(program->working_dir);
    if (program->argv->count == 0)
        fail("", NULL, "there is no program");
    const char *what = program->argv->items[0].text;
    if (program->asked_dir[0] != '\0' && chdir(program->asked_dir) < 0) {
        /* A command for that directory could do damage in another one. */
        struct buffer sentence = {0};
        if (failure_report <= 0 || errno != ENOENT)
            fail(what, program->asked_dir, reason_of(errno));
        buffer_format(&sentence, "cwd '%s' does not exist", program->asked_dir);
        report_failure(&sentence);
    }
    char **argv = allocate((program->argv->count + 1) * sizeof *argv);
    for (size_t index = 0; index < program->argv->count; index++)
        argv[index] = bytes_of(&program->argv->items[index], what);
    argv[program->argv->count] = NULL;
    char **environment = environment_of(program, what);
    fail(what, NULL, reason_of(execute(argv, environment)));
}
