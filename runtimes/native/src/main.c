/*
 * The first process of a sandbox: `init <descriptor>`, where the descriptor has what `worker.c` reads. The program that made the sandbox
 * (`rookery_zygote`) becomes this one before anybody asks for an instance; it starts the one that is asked for, and is its init then.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "init.h"
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
    if (count != 2 || !worker_read(&worker, atoi(arguments[1]))) {
        fprintf(stderr, "this program is the first process of a sandbox, and is started by what makes one\n");
        return WRONG_USE;
    }
    signal(SIGPIPE, SIG_IGN);
    title_room(count, arguments);
    show_title("rookery: worker");
    start_instance(&worker);
    run_init(&worker.sandbox);
}
