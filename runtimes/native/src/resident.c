/* Init's side of the process table: starts it with the first request, and passes connections to it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frames.h"
#include "kernel.h"
#include "reason.h"
#include "table.h"

static pid_t table;
static int control = -1;

static void close_control(void)
{
    if (control >= 0)
        close(control);
    control = -1;
}

void note_end_of_table(pid_t pid)
{
    if (pid != table)
        return;
    table = 0;
    close_control();
}

/* Returns false with errno. */
static bool start_table(const struct sandbox *sandbox)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    table = fork();
    if (table == 0)
        run_table(pair[1], sandbox);
    int number = errno;
    close(pair[1]);
    control = pair[0];
    /* Init never waits for the table. */
    fcntl(control, F_SETFL, O_NONBLOCK);
    if (table > 0)
        return true;
    table = 0;
    close_control();
    errno = number;
    return false;
}

void pass_to_table(int connection, const struct sandbox *sandbox)
{
    static const char passed = 'c';
    for (int tries = 0; tries < 2; tries++) {
        if (control < 0 && !start_table(sandbox))
            break;
        if (send_with(control, &passed, 1, &connection, 1))
            return;
        if (errno == EAGAIN) {
            refuse(connection, "resource_exhausted", "the process table of this sandbox does not answer");
            return;
        }
        /* The table has just ended, for example because a process inside has killed it. */
        close_control();
    }
    refuse(connection, "unavailable", "the process table of this sandbox cannot be started: %s", reason_of(errno));
}
