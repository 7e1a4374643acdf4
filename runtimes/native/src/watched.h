/* The directories of one watch, and what the kernel's queue says of them. */
#ifndef WATCHED_H
#define WATCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/inotify.h>

#include "changes.h"

/* One watched directory, with its path below the top, which has "". */
struct directory {
    int number;
    char *name;
};

struct watched {
    /* The kernel's queue of changes. */
    int queue;
    bool is_recursive;
    struct changes changes;
    /* In the order of their numbers. */
    struct directory *all;
    size_t count, capacity;
    /* Names that a look into a new directory has reported, whose changes may still be in the queue. */
    char **reported;
    size_t reported_count, reported_capacity;
    /* The queue was too short. */
    bool has_lost;
    /* Why a new directory cannot be watched; 0 if all are. */
    int error;
};

/* Watches a directory; with `is_recursive` also those below. False with errno. */
bool watched_begin(struct watched *watched, const char *path);
/* Adds the changes that an event of the queue stands for. */
void watched_handle(struct watched *watched, const struct inotify_event *event);
/* Must be called when all events of the queue have been handled. */
void watched_is_idle(struct watched *watched);
/* Says why a directory cannot be watched. */
const char *watched_reason(const struct watched *watched);

#endif
