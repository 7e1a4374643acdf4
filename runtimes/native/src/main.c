/*
 * The first process of a sandbox. It makes the sandbox in advance, starts the requested instance, and becomes
 * its init. `init <descriptor> <told>` makes a sandbox: the descriptor has the facts that all workers of a
 * zygote share, and `told` is what `runtimes/native/fork` reports of this one. `init <descriptor>` continues
 * in a sandbox that exists: the descriptor has what `worker.c` reads. `init --access <descriptor>` and `init
 * --container <connection>` serve one access (`entry.h`). `init --sandbox <orders>` is the first process of a
 * container without code (`container.h`).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "container.h"
#include "entry.h"
#include "init.h"
#include "making.h"
#include "rights.h"
#include "start.h"
#include "title.h"

enum { WRONG_USE = 2 };

int main(int count, char *arguments[])
{
    static struct worker worker;
    /* Comes first: processes inside must never inspect this one. */
    forbid_inspection();
    if (count == 2 && strcmp(arguments[1], "--check") == 0)
        return 0;
    signal(SIGPIPE, SIG_IGN);
    if (count == 3 && strcmp(arguments[1], "--access") == 0)
        serve_access_from_facts(atoi(arguments[2]));
    if (count == 3 && strcmp(arguments[1], "--container") == 0)
        serve_container(atoi(arguments[2]));
    if (count == 3 && strcmp(arguments[1], "--sandbox") == 0) {
        char *orders = copy_text(arguments[2], strlen(arguments[2]));
        title_room(count, arguments);
        run_container(orders);
    }
    int descriptor = count > 1 ? atoi(arguments[1]) : -1;
    char *told = count == 3 ? copy_text(arguments[2], strlen(arguments[2])) : NULL;
    if (told == NULL && (count != 2 || !worker_read(&worker, descriptor))) {
        fprintf(stderr, "this program is the first process of a sandbox, and is started by what makes one\n");
        return WRONG_USE;
    }
    title_room(count, arguments);
    show_title("rookery: worker");
    if (told != NULL)
        make_worker(&worker, descriptor, told);
    start_instance(&worker);
    run_init(&worker.sandbox);
}
