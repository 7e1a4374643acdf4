#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directories.h"
#include "frames.h"
#include "refusals.h"

/* Returns the text before the path, and moves `path` to what follows. */
static const char *start_of(int connection, const char **path, const struct owner *owner)
{
    static char directory[PATH_MAX];
    if ((*path)[0] == '/')
        return "";
    if (owner->home == NULL)
        return getcwd(directory, sizeof directory) != NULL ? directory : "/";
    if ((*path)[0] == '~') {
        if ((*path)[1] != '\0' && (*path)[1] != '/') {
            refuse(connection, "invalid_request", "%s: the home of another user must be given as an absolute path", shown(*path));
            _exit(0);
        }
        *path += 1;
    }
    return owner->home;
}

char *member_path(int connection, const struct json *request, const char *member, bool may_be_empty)
{
    const struct json *asked = json_get(request, member);
    if (asked->kind != JSON_STRING || (asked->size == 0 && !may_be_empty)) {
        refuse(connection, "invalid_request", "the path must not be empty");
        _exit(0);
    }
    if (json_has_nul(asked)) {
        refuse(connection, "invalid_request", "the path must not contain a NUL byte");
        _exit(0);
    }
    char *text = json_bytes(asked);
    if (text == NULL) {
        refuse(connection, "invalid_request", "the path is not text that can be the name of a file");
        _exit(0);
    }
    return text;
}

char *locate(int connection, const struct json *request, const char *member, const struct owner *owner)
{
    char *text = member_path(connection, request, member, owner->home != NULL);
    struct buffer whole = {0};
    const char *path = text, *start = start_of(connection, &path, owner);
    buffer_format(&whole, "%s/%s", start, path);
    char *made = normal(whole.data);
    buffer_free(&whole);
    free(text);
    return made;
}

bool give_to(const struct owner *owner, int descriptor)
{
    struct stat about;
    if (fchownat(descriptor, "", owner->uid, owner->gid, AT_EMPTY_PATH) == 0)
        return true;
    int number = errno;
    if (number == EPERM && fstat(descriptor, &about) == 0 && about.st_uid == geteuid())
        return true;
    errno = number;
    return false;
}

/* Opens a directory of another one. With an `owner`, makes it if it is missing. */
static int open_next(int above, const char *name, const struct owner *owner)
{
    int next = openat(above, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (next >= 0 || errno != ENOENT || owner == NULL)
        return next;
    bool is_made = mkdirat(above, name, 0755) == 0;
    if (!is_made && errno != EEXIST)
        return -1;
    /* A link that replaces the new directory in the meantime must not get another owner for its target. */
    next = openat(above, name, O_PATH | O_DIRECTORY | O_CLOEXEC | (is_made ? O_NOFOLLOW : 0));
    if (next >= 0 && is_made && !give_to(owner, next)) {
        int number = errno;
        close(next);
        errno = number;
        return -1;
    }
    return next;
}

int open_above(const char *path, const struct owner *owner, const char **name)
{
    int above = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *part = path + 1;
    for (const char *end; above >= 0 && (end = strchr(part, '/')) != NULL; part = end + 1) {
        char *directory = copy_text(part, (size_t)(end - part));
        int next = open_next(above, directory, owner), number = errno;
        free(directory);
        close(above);
        errno = number;
        above = next;
    }
    *name = part[0] != '\0' ? part : ".";
    return above;
}
