#include "failure.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include "buffer.h"
#include "frames.h"
#include "reason.h"

static void (*undo_start)(void);
static const int *waiting;

void fail_by(void (*undo)(void), const int *connection)
{
    undo_start = undo;
    waiting = connection;
}

_Noreturn void fail_start(const char *code, const char *format, ...)
{
    struct buffer sentence = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(&sentence, format, arguments);
    va_end(arguments);
    /* Undoes before it answers, so that the answer finds a clean state. */
    undo_start();
    refuse(*waiting, code, "%s", sentence.data);
    _exit(1);
}

_Noreturn void fail_with_errno(const char *what)
{
    int number = errno;
    fail_start(code_of(number), "the sandbox cannot be started: %s: %s", what, reason_of(number));
}

void must(bool is_done, const char *what)
{
    if (!is_done)
        fail_with_errno(what);
}
