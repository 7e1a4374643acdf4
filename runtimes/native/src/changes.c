#include "changes.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"
#include "json.h"

enum { MANY = 512 };

struct one_change {
    enum change change;
    char *name;
};

static const char *const WORDS[] = {
    [CREATED] = "create", [WRITTEN] = "write", [REMOVED] = "remove", [RENAMED] = "rename", [CHMODDED] = "chmod"};

void changes_add(struct changes *changes, enum change change, const char *name)
{
    struct one_change *last = changes->count > 0 ? &changes->all[changes->count - 1] : NULL;
    if (last != NULL && last->change == change && strcmp(last->name, name) == 0)
        return;
    if (changes->count == changes->capacity) {
        changes->capacity = changes->capacity ? changes->capacity * 2 : 64;
        changes->all = reallocate(changes->all, changes->capacity * sizeof *changes->all);
    }
    changes->all[changes->count++] = (struct one_change){change, copy_text(name, strlen(name))};
}

bool changes_are_many(const struct changes *changes)
{
    return changes->count >= MANY;
}

static void add_facts_of(const struct changes *changes, const char *name, struct buffer *target)
{
    struct buffer path = {0};
    struct buffer facts = {0};
    buffer_format(&path, "%s/%s", changes->top[1] == '\0' ? "" : changes->top, name);
    /* Without an entry there are no facts. */
    if (add_facts(&facts, AT_FDCWD, path.data, path.data)) {
        buffer_add(target, ",", 1);
        buffer_add(target, facts.data, facts.size);
    }
    buffer_free(&path);
    buffer_free(&facts);
}

void changes_write(struct changes *changes, struct buffer *target)
{
    size_t written = changes->count < MANY ? changes->count : MANY;
    buffer_add(target, "[", 1);
    for (size_t index = 0; index < written; index++) {
        const struct one_change *one = &changes->all[index];
        buffer_format(target, "%s[\"%s\",", index ? "," : "", WORDS[one->change]);
        json_write_bytes(target, one->name);
        if (changes->has_facts && one->change != REMOVED && one->change != RENAMED)
            add_facts_of(changes, one->name, target);
        buffer_add(target, "]", 1);
        free(one->name);
    }
    buffer_add(target, "]", 1);
    changes->count -= written;
    memmove(changes->all, changes->all + written, changes->count * sizeof *changes->all);
}
