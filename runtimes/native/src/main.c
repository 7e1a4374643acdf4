/*
 * The first process of a sandbox, which makes it before anybody asks for an instance, starts the one that is asked for, and is its init then:
 * `init <descriptor> <told>`, where the descriptor has what all workers of a zygote have in common and `told` is what `runtimes/native/fork` says
 * of this one; or `init <descriptor>`, where it has what `worker.c` reads: of a sandbox that is made.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "init.h"
#include "making.h"
#include "rights.h"
#include "start.h"
#include "title.h"

enum { WRONG_USE = 2 };

int main(int count, char *arguments[])
{
    static struct worker worker;
    /* First of all: what is inside must never look into this process. */
    close_to_others();
    if (count == 2 && strcmp(arguments[1], "--check") == 0)
        return 0;
    signal(SIGPIPE, SIG_IGN);
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
