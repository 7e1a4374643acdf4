#include "mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "reason.h"
#include "restrict.h"

enum { MOST_LINKS = 40, DESCRIPTOR_PATH = 32 };

/* Special file systems, in which nothing may be mounted. */
static const char *const KERNEL_TREES[] = {"/proc", "/dev"};
/* The part that a log or an answer shows. */
static const char SHARED_MEMORY[] = "/dev/shm";

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool is_within(const char *path, const char *tree)
{
    size_t size = strlen(tree);
    while (size > 0 && tree[size - 1] == '/')
        size--;
    return strcmp(path, tree) == 0 || (strncmp(path, tree, size) == 0 && path[size] == '/');
}

static bool is_same_or_parent(const char *path, const char *tree)
{
    return is_within(path, tree) || is_within(tree, path);
}

static bool has_text(const char *path, const char *text)
{
    return strstr(path, text) != NULL;
}

/* True if the path contains these names in sequence, as whole names. */
static bool has_names(const char *path, const char *names)
{
    size_t size = strlen(names);
    for (const char *at = path; (at = strstr(at, names)) != NULL; at++) {
        if (at[size] == '\0' || at[size] == '/')
            return true;
    }
    return false;
}

/* True if a rule forbids the path. A rule that is no path forbids all paths. */
static bool is_closed_by(const struct json *rules, const char *path, bool (*closes)(const char *, const char *))
{
    char rule[PATH_MAX];
    for (size_t index = 0; index < rules->count; index++) {
        if (!json_read_bytes(&rules->items[index], rule, sizeof rule) || closes(path, rule))
            return true;
    }
    return false;
}

static bool is_closed(const char *path, const struct json *policy)
{
    return is_closed_by(json_get(policy, "closed"), path, is_same_or_parent) ||
           is_closed_by(json_get(policy, "closedNames"), path, has_names) ||
           is_closed_by(json_get(policy, "closedTexts"), path, has_text);
}

static bool is_allowed(const char *path, const struct json *allow)
{
    char prefix[PATH_MAX];
    bool is_found = allow->kind != JSON_ARRAY;
    for (size_t index = 0; index < allow->count && !is_found; index++) {
        is_found = json_read_bytes(&allow->items[index], prefix, sizeof prefix) && is_within(path, prefix);
    }
    return is_found;
}

/*
 * Applies the rule of `src/core/host-path.ts`, which also has the lists, to an opened source. Returns NULL,
 * or the reason that follows the path in the refusal.
 */
static const char *refusal_of(const char *path, mode_t mode, const struct json *policy)
{
    if (is_closed(path, policy))
        return "";
    if (!is_allowed(path, json_get(policy, "allow")))
        return " (mounts.allow does not name it)";
    return S_ISDIR(mode) || S_ISREG(mode) ? NULL : " (it is neither a file nor a directory)";
}

static void by_descriptor(int descriptor, char path[DESCRIPTOR_PATH])
{
    snprintf(path, DESCRIPTOR_PATH, "/proc/self/fd/%d", descriptor);
}

void path_of(int descriptor, char path[PATH_MAX])
{
    char link[DESCRIPTOR_PATH];
    by_descriptor(descriptor, link);
    ssize_t size = readlink(link, path, PATH_MAX);
    if (size < 0)
        fail_with_errno("a path cannot be read");
    if (size == PATH_MAX)
        fail_start(AS_ASKED, "a path is too long");
    path[size] = '\0';
}

/*
 * False for a removed file, and for a file in another mount namespace (reached through a link of /proc): its
 * path has no meaning here.
 */
static bool is_at(const struct stat *about, const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && found.st_dev == about->st_dev && found.st_ino == about->st_ino;
}

/* Opens `name` in a directory, and closes the directory. A symbolic link fails with ELOOP. */
static int open_next(int directory, const char *name)
{
    struct stat about;
    int found = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), error = errno;
    close(directory);
    if (found >= 0 && (fstat(found, &about) < 0 || S_ISLNK(about.st_mode))) {
        close(found);
        found = -1;
        error = ELOOP;
    }
    errno = error;
    return found;
}

/* Opens an absolute path without symbolic links, one directory at a time. */
static int open_without_links(const char *path)
{
    char name[NAME_MAX + 1];
    int here = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (path += strspn(path, "/"); here >= 0 && *path != '\0'; path += strspn(path, "/")) {
        size_t length = strcspn(path, "/");
        if (length > NAME_MAX) {
            close(here);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, length);
        name[length] = '\0';
        here = open_next(here, name);
        path += length;
    }
    return here;
}

static int open_absolute(const struct json *path, bool follows_links)
{
    char *bytes = path->kind == JSON_STRING && path->text[0] == '/' && !json_has_nul(path) ? json_bytes(path) : NULL;
    if (bytes == NULL)
        fail_start(AS_ASKED, "mount source must be an absolute path: %s", path->kind == JSON_STRING ? path->text : "");
    int descriptor = follows_links ? open(bytes, O_PATH | O_CLOEXEC) : open_without_links(bytes);
    if (descriptor < 0 && !follows_links && errno == ELOOP)
        fail_start(AS_ASKED, "mount source leads through a symbolic link: %s", bytes);
    if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR))
        fail_start(AS_ASKED, "mount source does not exist: %s", bytes);
    if (descriptor < 0)
        fail_start(AS_ASKED, "mount source cannot be opened: %s: %s", bytes, reason_of(errno));
    free(bytes);
    return descriptor;
}

int open_own(const struct json *path)
{
    return open_absolute(path, false);
}

int open_source(const struct json *path, const struct json *policy)
{
    int descriptor = open_absolute(path, true);
    char resolved[PATH_MAX];
    struct stat about;
    path_of(descriptor, resolved);
    if (fstat(descriptor, &about) < 0)
        fail_with_errno("a mount source cannot be looked at");
    const char *refusal = refusal_of(resolved, about.st_mode, policy);
    if (refusal == NULL && !is_at(&about, resolved))
        refusal = "";
    if (refusal != NULL)
        fail_start(AS_ASKED, "unsafe mount source: %s%s", json_bytes(path), refusal);
    return descriptor;
}

/* `resolved`: the path of `target` inside. */
static void check_target(const char *resolved, const char *target, const struct needed *needed)
{
    for (size_t index = 0; index < needed->count; index++) {
        if (is_within(needed->paths[index], resolved))
            fail_start(AS_ASKED, "mount target %s hides %s, which the sandbox needs", target, needed->paths[index]);
    }
    for (size_t index = 0; index < COUNT(KERNEL_TREES); index++) {
        bool is_needed = false;
        for (size_t other = 0; other < needed->count; other++)
            is_needed = is_needed || strcmp(needed->paths[other], KERNEL_TREES[index]) == 0;
        if (is_needed && is_within(resolved, KERNEL_TREES[index]) && !is_within(resolved, SHARED_MEMORY))
            fail_start(AS_ASKED, "mount target %s is in %s, which the sandbox needs", target, KERNEL_TREES[index]);
    }
}

void mount_source(int source, const struct json *target, bool is_readonly, const char *root, const struct needed *needed)
{
    char normal[PATH_MAX], resolved[PATH_MAX], inside[PATH_MAX], from[DESCRIPTOR_PATH], to[DESCRIPTOR_PATH];
    const char *reason;
    struct stat about;
    normalize_target(target, normal);
    if (fstat(source, &about) < 0)
        fail_with_errno("a mount source cannot be looked at");
    bool wants_directory = S_ISDIR(about.st_mode);
    int place = open_target(root, normal, wants_directory, &reason);
    if (place < 0)
        fail_start(AS_ASKED, "mount target cannot be made: %s: %s", target->text, reason);
    if (realpath(root, inside) == NULL)
        fail_with_errno("the root cannot be found");
    path_of(place, resolved);
    if (!is_within(resolved, inside))
        fail_start("internal", "a mount target is outside of the root");
    check_target(resolved + strlen(inside), target->text, needed);
    /* Uses the path through the descriptor, so that the source cannot be replaced between check and mount. */
    by_descriptor(source, from);
    by_descriptor(place, to);
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
        fail_start(AS_ASKED, "mount failed: %s: %s", target->text, reason_of(errno));
    close(place);
    /* The descriptor refers to the directory below the new mount, so the mount itself is opened again. */
    place = open_target(root, normal, wants_directory, &reason);
    if (place < 0)
        fail_start(AS_ASKED, "mount cannot be restricted: %s: %s", target->text, reason);
    by_descriptor(place, to);
    if (!restrict_mount(to, is_readonly))
        fail_start(AS_ASKED, "mount cannot be restricted: %s: %s", target->text, reason_of(errno));
    close(place);
}

/* Writes `path` in its shortest form, without resolving links; / becomes "". False if it is too long. */
static bool normalize(const char *path, char normal[PATH_MAX])
{
    size_t size = 0;
    for (path += strspn(path, "/"); *path != '\0'; path += strspn(path, "/")) {
        size_t length = strcspn(path, "/");
        if (length == 2 && path[0] == '.' && path[1] == '.') {
            while (size > 0 && normal[--size] != '/')
                ;
        } else if (length != 1 || path[0] != '.') {
            if (size + length + 1 >= PATH_MAX)
                return false;
            normal[size++] = '/';
            memcpy(normal + size, path, length);
            size += length;
        }
        path += length;
    }
    normal[size] = '\0';
    return true;
}

bool read_path(const struct json *text, char normal[PATH_MAX])
{
    char *bytes = text->kind == JSON_STRING && !json_has_nul(text) ? json_bytes(text) : NULL;
    bool is_path = bytes != NULL && normalize(bytes, normal) && normal[0] != '\0';
    free(bytes);
    return is_path;
}

void normalize_target(const struct json *target, char normal[PATH_MAX])
{
    if (!read_path(target, normal))
        fail_start(AS_ASKED, "mount target must be a path below /: %s", target->kind == JSON_STRING ? target->text : "");
}

static int open_or_make(int directory, const char *name, bool wants_directory)
{
    const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    int found = openat(directory, name, flags);
    if (found >= 0 || errno != ENOENT)
        return found;
    if (wants_directory) {
        if (mkdirat(directory, name, 0755) < 0)
            return -1;
    } else {
        int made = openat(directory, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (made < 0)
            return -1;
        close(made);
    }
    return openat(directory, name, flags);
}

/*
 * Computes the remaining path, from the root on: the target of the link at `link` in the directory `done`,
 * then `rest`. False if it is too long.
 */
static bool follow(int link, const char *done, char rest[PATH_MAX])
{
    char target[PATH_MAX], whole[3 * PATH_MAX], normal[PATH_MAX];
    ssize_t size = readlinkat(link, "", target, sizeof target - 1);
    if (size < 0)
        return false;
    target[size] = '\0';
    snprintf(whole, sizeof whole, "%s/%s", target[0] == '/' ? "" : done, target);
    /* `rest` must stay unresolved. */
    if (!normalize(whole, normal) || strlen(normal) + strlen(rest) + 1 >= PATH_MAX)
        return false;
    snprintf(whole, sizeof whole, "%s/%s", normal, rest);
    strcpy(rest, whole);
    return true;
}

int open_target(const char *root, const char *target, bool wants_directory, const char **reason)
{
    char rest[PATH_MAX], done[PATH_MAX] = "", name[NAME_MAX + 1];
    struct stat about;
    int links = 0, here = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    strcpy(rest, target);
    for (;;) {
        size_t skipped = strspn(rest, "/"), length = strcspn(rest + skipped, "/");
        if (here < 0)
            break;
        if (length == 0) {
            if (fstat(here, &about) < 0)
                break;
            if (S_ISDIR(about.st_mode) == wants_directory)
                return here;
            *reason = wants_directory ? "it is not a directory" : "it is a directory";
            close(here);
            return -1;
        }
        errno = ENAMETOOLONG;
        if (length > NAME_MAX)
            break;
        memcpy(name, rest + skipped, length);
        name[length] = '\0';
        memmove(rest, rest + skipped + length, strlen(rest + skipped + length) + 1);
        bool is_last = rest[strspn(rest, "/")] == '\0';
        int following = open_or_make(here, name, wants_directory || !is_last);
        if (following < 0 || fstat(following, &about) < 0)
            break;
        close(here);
        here = following;
        if (S_ISLNK(about.st_mode)) {
            errno = ENAMETOOLONG;
            if (++links > MOST_LINKS) {
                *reason = "too many symbolic links";
                close(here);
                return -1;
            }
            if (!follow(here, done, rest))
                break;
            close(here);
            here = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
            done[0] = '\0';
            continue;
        }
        errno = ENAMETOOLONG;
        if (strlen(done) + length + 1 >= PATH_MAX)
            break;
        strcat(strcat(done, "/"), name);
    }
    *reason = reason_of(errno);
    if (here >= 0)
        close(here);
    return -1;
}
