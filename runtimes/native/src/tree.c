#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directories.h"
#include "facts.h"
#include "frames.h"
#include "refusals.h"

enum {
    MOST_TREE_BYTES = 16777216,
    ENTRIES_BETWEEN_LOOKS = 500,
    /* One descriptor is open for each level of a list. */
    MOST_LEVELS = 64,
};

/* Removal */

/* A directory that is being emptied: its identity, and its name in the one above. */
struct level {
    dev_t device;
    ino_t inode;
    char *name;
};

struct removal {
    int connection;
    struct level *levels;
    size_t count, capacity;
};

enum step { FAILED, EMPTY, DESCENDED };

/* Removes one entry. Sets `is_full` if it is a directory that has entries. False with errno. */
static bool remove_one(int above, const char *name, bool *is_full)
{
    *is_full = false;
    if (unlinkat(above, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    int number = errno;
    if (unlinkat(above, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return true;
    if (errno == ENOTDIR)
        /* A file that may not be removed. */
        errno = number;
    *is_full = errno == ENOTEMPTY || errno == EEXIST;
    return *is_full;
}

/* Enters a directory, and closes the one above. -1 with errno. */
static int descend(struct removal *removal, int above, const char *name)
{
    struct stat about;
    int next = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    int number = errno;
    close(above);
    if (next < 0 || fstat(next, &about) < 0) {
        errno = next < 0 ? number : errno;
        return -1;
    }
    if (removal->count == removal->capacity) {
        removal->capacity = removal->capacity ? removal->capacity * 2 : 64;
        removal->levels = reallocate(removal->levels, removal->capacity * sizeof *removal->levels);
    }
    removal->levels[removal->count++] = (struct level){about.st_dev, about.st_ino, copy_text(name, strlen(name))};
    return next;
}

/* Returns to the directory above, which must be the one from which `descend` came. -1 with errno. */
static int ascend(const struct removal *removal, int below)
{
    struct stat about;
    const struct level *expected = &removal->levels[removal->count - 1];
    int above = openat(below, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int number = errno;
    close(below);
    if (above >= 0 && fstat(above, &about) == 0 && about.st_dev == expected->device && about.st_ino == expected->inode)
        return above;
    if (above >= 0) {
        close(above);
        /* Code inside has moved the directory. */
        number = EBUSY;
    }
    errno = number;
    return -1;
}

/* Removes the entries of a directory until one is a directory with entries, which it enters. */
static enum step empty(struct removal *removal, int *directory)
{
    int listed = dup(*directory);
    DIR *entries = listed < 0 ? NULL : fdopendir(listed);
    if (entries == NULL)
        return FAILED;
    enum step step = EMPTY;
    rewinddir(entries);
    for (struct dirent *one; step == EMPTY && (one = readdir(entries)) != NULL;) {
        bool is_full;
        if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0)
            continue;
        if (has_left(removal->connection))
            _exit(0);
        if (!remove_one(*directory, one->d_name, &is_full)) {
            step = FAILED;
        } else if (is_full) {
            *directory = descend(removal, *directory, one->d_name);
            step = *directory < 0 ? FAILED : DESCENDED;
        }
    }
    int number = errno;
    closedir(entries);
    errno = number;
    return step;
}

bool remove_tree(int connection, int above, const char *name)
{
    struct removal removal = {.connection = connection};
    bool is_full;
    if (!remove_one(above, name, &is_full))
        return false;
    if (!is_full)
        return true;
    int directory = descend(&removal, dup(above), name);
    while (directory >= 0) {
        enum step step = empty(&removal, &directory);
        if (step == FAILED)
            return false;
        if (step == DESCENDED)
            continue;
        char *emptied = removal.levels[--removal.count].name;
        if (removal.count == 0) {
            close(directory);
            directory = dup(above);
        } else {
            directory = ascend(&removal, directory);
        }
        if (directory < 0)
            return false;
        /* If code inside has added an entry, the next pass of the directory above enters it again. */
        bool is_removed = unlinkat(directory, emptied, AT_REMOVEDIR) == 0 || errno == ENOENT;
        free(emptied);
        if (removal.count == 0) {
            int number = errno;
            close(directory);
            errno = number;
            return is_removed;
        }
        if (!is_removed && errno != ENOTEMPTY && errno != EEXIST)
            return false;
    }
    return false;
}

/* Lists */

struct list {
    int connection;
    struct buffer answer;
    size_t most, found;
    long deepest;
    bool is_cut;
};

static bool has_room(const struct list *list)
{
    return list->found < list->most && list->answer.size < MOST_TREE_BYTES;
}

/* Adds the entries of an open directory, which it closes. */
static void add_level(struct list *list, int descriptor, const char *path, long depth)
{
    DIR *directory = fdopendir(descriptor);
    if (directory == NULL) {
        close(descriptor);
        return;
    }
    size_t count;
    char **names = names_in(directory, list->most - list->found + 1, &count, &list->is_cut);
    for (size_t index = 0; index < count; index++) {
        struct buffer inside = {0};
        struct stat about;
        if (!has_room(list)) {
            list->is_cut = true;
        } else if (fstatat(descriptor, names[index], &about, AT_SYMLINK_NOFOLLOW) == 0) {
            buffer_format(&inside, "%s/%s", path[1] == '\0' ? "" : path, names[index]);
            buffer_format(&list->answer, "%s", list->found ? "," : "");
            add_known_facts(&list->answer, &about, inside.data);
            if (++list->found % ENTRIES_BETWEEN_LOOKS == 0 && has_left(list->connection))
                _exit(0);
            list->is_cut = list->is_cut || (S_ISDIR(about.st_mode) && depth == MOST_LEVELS);
            int below = S_ISDIR(about.st_mode) && depth < list->deepest
                            ? openat(descriptor, names[index], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
                            : -1;
            if (below >= 0)
                add_level(list, below, inside.data, depth + 1);
            buffer_free(&inside);
        }
        free(names[index]);
    }
    free(names);
    closedir(directory);
}

void list_tree(int connection, const char *path, const struct json *request)
{
    struct stat about;
    struct list list = {.connection = connection, .most = (size_t)json_number(request, "maxEntries")};
    double deepest = json_number(request, "maxDepth");
    list.deepest = deepest < MOST_LEVELS ? (long)deepest : MOST_LEVELS;
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 && errno == ENOTDIR && stat(path, &about) == 0) {
        refuse(connection, "invalid_request", "%s is not a directory", shown(path));
        return;
    }
    if (descriptor < 0)
        refuse_error(connection, errno, path, "listed");
    buffer_format(&list.answer, "{\"ok\":true,\"entries\":[");
    add_level(&list, descriptor, path, 1);
    buffer_format(&list.answer, "],\"truncated\":%s}", list.is_cut ? "true" : "false");
    send_frame(connection, list.answer.data, list.answer.size);
}
