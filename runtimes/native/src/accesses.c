#include "accesses.h"

#include <errno.h>
#include <unistd.h>

#include "access.h"
#include "frames.h"
#include "reason.h"

enum { MOST_ACCESSES = 512 };

/* The children that serve accesses. */
static struct {
    pid_t pid;
    enum access_kind kind;
} accesses[MOST_ACCESSES];
static int access_count;

void note_end_of_access(pid_t pid)
{
    for (int index = 0; index < access_count; index++) {
        if (accesses[index].pid == pid)
            accesses[index] = accesses[--access_count];
    }
}

/* The parent keeps only a count, so that long accesses occupy no connection. */
void start_access(int connection, const struct sandbox *sandbox, const char *name)
{
    enum access_kind kind = access_kind_of(name);
    int open = 0;
    if (kind == ACCESS_KINDS) {
        refuse(connection, "internal", "a sandbox has no access of kind %s", name);
        return;
    }
    for (int index = 0; index < access_count; index++)
        open += accesses[index].kind == kind;
    if (open >= most_accesses(kind)) {
        refuse(connection, "resource_exhausted", "too many %s are open in this sandbox (%d)", plural_of(kind), most_accesses(kind));
        return;
    }
    pid_t child = fork();
    if (child == 0)
        serve_access(connection, sandbox, kind);
    if (child < 0) {
        refuse(connection, "unavailable", "no process can be started inside: %s", reason_of(errno));
        return;
    }
    accesses[access_count].pid = child;
    accesses[access_count++].kind = kind;
}
