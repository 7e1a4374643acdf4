#include "identity.h"

#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buffer.h"
#include "failure.h"

enum { USUAL_GROUPS = 32, MOST_DIGITS = 12 };

/*
 * The files on which an answer depends. The last is the socket of a name service, which may know more users.
 */
static const char *const SOURCES[] = {"/etc/passwd", "/etc/group", "/var/run/nscd/socket"};
enum { SOURCE_COUNT = sizeof SOURCES / sizeof *SOURCES };

/* The identity of root, and the state of the sources at that time. `name` is NULL if it is unknown. */
static struct identity usual;
static struct stat usual_sources[SOURCE_COUNT];

_Noreturn static void fail_as_missing(const char *kind, const char *name)
{
    fail_start(AS_ASKED, "%s %s does not exist in /etc/%s of this host", kind, name, strcmp(kind, "user") == 0 ? "passwd" : kind);
}

static bool is_number(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* Parses a number. Returns false if it is no id. */
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

static void stat_sources(struct stat looks[SOURCE_COUNT])
{
    for (size_t index = 0; index < SOURCE_COUNT; index++) {
        if (stat(SOURCES[index], &looks[index]) < 0)
            looks[index] = (struct stat){0};
    }
}

static bool sources_are_unchanged(void)
{
    struct stat now[SOURCE_COUNT];
    stat_sources(now);
    for (size_t index = 0; index < SOURCE_COUNT; index++) {
        const struct stat *one = &now[index], *other = &usual_sources[index];
        if (one->st_ino != other->st_ino || one->st_dev != other->st_dev || one->st_size != other->st_size ||
            one->st_ctim.tv_sec != other->st_ctim.tv_sec || one->st_ctim.tv_nsec != other->st_ctim.tv_nsec)
            return false;
    }
    return true;
}

static void look_up(struct identity *found, const char *user)
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

void find_usual_identity(void)
{
    stat_sources(usual_sources);
    /* The answers of a name service may change without a visible sign. */
    if (usual_sources[SOURCE_COUNT - 1].st_ino == 0)
        look_up(&usual, "");
}

void find_identity(struct identity *found, const char *user)
{
    if (user[0] == '\0' && usual.name != NULL && sources_are_unchanged())
        *found = usual;
    else
        look_up(found, user);
}
