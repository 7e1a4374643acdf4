#include "identity.h"

#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "failure.h"

enum { USUAL_GROUPS = 32, MOST_DIGITS = 12 };

_Noreturn static void fail_as_missing(const char *kind, const char *name)
{
    fail_start(AS_ASKED, "%s %s does not exist in /etc/%s of this host", kind, name, strcmp(kind, "user") == 0 ? "passwd" : kind);
}

static bool is_number(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* Of digits. False for what is no id. */
static bool read_id(const char *text, id_t *id)
{
    unsigned long long number = strlen(text) < MOST_DIGITS ? strtoull(text, NULL, 10) : UINT32_MAX;
    *id = (id_t)number;
    return number < UINT32_MAX;
}

static void find_groups(struct identity *found)
{
    int count = USUAL_GROUPS;
    found->groups = allocate((size_t)count * sizeof *found->groups);
    if (getgrouplist(found->name, found->gid, found->groups, &count) < 0) {
        found->groups = reallocate(found->groups, (size_t)count * sizeof *found->groups);
        if (getgrouplist(found->name, found->gid, found->groups, &count) < 0)
            found->groups[0] = found->gid, count = 1;
    }
    found->group_count = (size_t)count;
}

static gid_t group_called(const char *name)
{
    id_t id;
    if (is_number(name)) {
        if (!read_id(name, &id))
            fail_as_missing("group", name);
        return id;
    }
    const struct group *entry = getgrnam(name);
    if (entry == NULL)
        fail_as_missing("group", name);
    return entry->gr_gid;
}

void find_identity(struct identity *found, const char *user)
{
    struct buffer name = {0};
    size_t size = strcspn(user, ":");
    id_t id = 0;
    buffer_format(&name, "%.*s", (int)size, user);
    bool is_id = is_number(name.data) && read_id(name.data, &id);
    const struct passwd *entry = is_id ? getpwuid(id) : is_number(name.data) ? NULL : getpwnam(size ? name.data : "root");
    if (entry != NULL) {
        buffer_free(&name);
        buffer_format(&name, "%s", entry->pw_name);
        *found = (struct identity){.name = name.data, .uid = entry->pw_uid, .gid = entry->pw_gid};
        find_groups(found);
    } else {
        if (!is_id && size > 0)
            fail_as_missing("user", name.data);
        *found = (struct identity){.name = size ? name.data : "root", .uid = id, .gid = id};
    }
    bool has_group = user[size] == ':' && user[size + 1] != '\0';
    if (has_group)
        found->gid = group_called(user + size + 1);
    if (has_group || entry == NULL) {
        found->groups = reallocate(found->groups, sizeof *found->groups);
        found->groups[0] = found->gid;
        found->group_count = 1;
    }
}
