/* Changes that a watch has seen and not sent yet. */
#ifndef CHANGES_H
#define CHANGES_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"

enum change { CREATED, WRITTEN, REMOVED, RENAMED, CHMODDED };

struct changes {
    /* The absolute path of the watched directory. */
    const char *top;
    /* Adds the facts of entries that exist. */
    bool has_facts;
    struct one_change *all;
    size_t count, capacity;
};

/* Adds a change of the entry with this path below the top. Drops a repetition of the last change. */
void changes_add(struct changes *changes, enum change change, const char *name);
/* True if there are enough changes for one message. */
bool changes_are_many(const struct changes *changes);
/* Writes the first changes as a list for one message, and removes them. */
void changes_write(struct changes *changes, struct buffer *target);

#endif
