#include "watched.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directories.h"
#include "files.h"
#include "reason.h"

enum {
    CHANGES = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO,
    /* The most directories of one watch. */
    MOST_DIRECTORIES = 8192,
    /* The most changes that one look may find. */
    MOST_CHANGES = 131072,
};

static char *joined(const char *above, const char *name)
{
    struct buffer path = {0};
    buffer_format(&path, "%s%s%s", above, above[0] != '\0' ? "/" : "", name);
    return path.data;
}

static char *absolute(const struct watched *watched, const char *name)
{
    struct buffer path = {0};
    const char *top = watched->changes.top;
    buffer_format(&path, "%s%s%s", top[1] == '\0' && name[0] != '\0' ? "" : top, name[0] != '\0' ? "/" : "", name);
    return path.data;
}

/* Returns the index of the first directory whose number is not smaller. */
static size_t place_of(const struct watched *watched, int number)
{
    size_t low = 0, high = watched->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (watched->all[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct directory *find(const struct watched *watched, int number)
{
    size_t place = place_of(watched, number);
    return place < watched->count && watched->all[place].number == number ? &watched->all[place] : NULL;
}

/* Adds a directory. False if it was watched already: then only its name is new. */
static bool remember(struct watched *watched, int number, const char *name)
{
    struct directory *known = find(watched, number);
    if (known != NULL) {
        free(known->name);
        known->name = copy_text(name, strlen(name));
        return false;
    }
    if (watched->count == watched->capacity) {
        watched->capacity = watched->capacity ? watched->capacity * 2 : 16;
        watched->all = reallocate(watched->all, watched->capacity * sizeof *watched->all);
    }
    size_t place = place_of(watched, number);
    memmove(watched->all + place + 1, watched->all + place, (watched->count - place) * sizeof *watched->all);
    watched->all[place] = (struct directory){number, copy_text(name, strlen(name))};
    watched->count++;
    return true;
}

static void forget(struct watched *watched, int number)
{
    size_t place = place_of(watched, number);
    if (place == watched->count || watched->all[place].number != number)
        return;
    free(watched->all[place].name);
    watched->count--;
    memmove(watched->all + place, watched->all + place + 1, (watched->count - place) * sizeof *watched->all);
}

/* Stops watching a directory that was moved away, and those below. */
static void leave(struct watched *watched, const char *name)
{
    size_t size = strlen(name), kept = 0;
    for (size_t index = 0; index < watched->count; index++) {
        struct directory *one = &watched->all[index];
        if (strncmp(one->name, name, size) == 0 && (one->name[size] == '/' || one->name[size] == '\0')) {
            inotify_rm_watch(watched->queue, one->number);
            free(one->name);
        } else {
            watched->all[kept++] = *one;
        }
    }
    watched->count = kept;
}

/* Names that were reported before their change arrived */

static void remember_reported(struct watched *watched, const char *name)
{
    if (watched->reported_count == watched->reported_capacity) {
        watched->reported_capacity = watched->reported_capacity ? watched->reported_capacity * 2 : 64;
        watched->reported = reallocate(watched->reported, watched->reported_capacity * sizeof *watched->reported);
    }
    watched->reported[watched->reported_count++] = copy_text(name, strlen(name));
}

/* True if the name was reported; the next creation of this name counts again. */
static bool take_reported(struct watched *watched, const char *name)
{
    for (size_t index = 0; index < watched->reported_count; index++) {
        if (strcmp(watched->reported[index], name) != 0)
            continue;
        free(watched->reported[index]);
        watched->reported[index] = watched->reported[--watched->reported_count];
        return true;
    }
    return false;
}

void watched_is_idle(struct watched *watched)
{
    while (watched->reported_count > 0)
        free(watched->reported[--watched->reported_count]);
}

/* Directories */

static bool enter(struct watched *watched, const char *name, bool reports);

/* Reports an entry of a new directory, and enters it if it is a directory. False with errno. */
static bool look_at(struct watched *watched, int descriptor, const char *name, const char *path, bool reports)
{
    struct stat about;
    /* The entry was removed in the meantime. */
    if (fstatat(descriptor, name, &about, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    if (reports) {
        changes_add(&watched->changes, CREATED, path);
        remember_reported(watched, path);
        if (S_ISREG(about.st_mode) && about.st_size > 0)
            changes_add(&watched->changes, WRITTEN, path);
    }
    return !S_ISDIR(about.st_mode) || enter(watched, path, reports);
}

/* Watches a directory and those below. `reports`: as new, with all that is in it. False with errno. */
static bool enter(struct watched *watched, const char *name, bool reports)
{
    char *path = absolute(watched, name);
    int number = watched->count < MOST_DIRECTORIES
                     ? inotify_add_watch(watched->queue, path, CHANGES | IN_ONLYDIR | (name[0] != '\0' ? IN_DONT_FOLLOW : 0))
                     : -1;
    int error = watched->count < MOST_DIRECTORIES ? errno : EMFILE;
    bool is_new = number >= 0 && remember(watched, number, name);
    int descriptor = is_new && (watched->is_recursive || reports)
                         ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | (name[0] != '\0' ? O_NOFOLLOW : 0))
                         : -1;
    free(path);
    if (number < 0) {
        errno = error;
        /* A directory below that was removed or closed in the meantime is no failure. */
        return name[0] != '\0' && error != ENOSPC && error != EMFILE && error != ENOMEM;
    }
    DIR *directory = descriptor < 0 ? NULL : fdopendir(descriptor);
    bool is_good = true;
    for (struct dirent *one; is_good && directory != NULL && (one = readdir(directory)) != NULL;) {
        if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0 || is_temporary(one->d_name))
            continue;
        if (!reports && one->d_type != DT_DIR && one->d_type != DT_UNKNOWN)
            continue;
        char *inside = joined(name, one->d_name);
        is_good = look_at(watched, descriptor, one->d_name, inside, reports);
        free(inside);
        if (watched->changes.count > MOST_CHANGES) {
            watched->has_lost = true;
            break;
        }
    }
    error = errno;
    if (directory != NULL)
        closedir(directory);
    errno = error;
    return is_good;
}

bool watched_begin(struct watched *watched, const char *path)
{
    watched->changes.top = path;
    if (enter(watched, "", false))
        return true;
    watched->error = errno;
    return false;
}

const char *watched_reason(const struct watched *watched)
{
    return watched->error == EMFILE || watched->error == ENOSPC ? "there are too many directories to watch" : reason_of(watched->error);
}

/* Events */

static void appeared(struct watched *watched, const char *path, const struct inotify_event *event)
{
    if (!take_reported(watched, path))
        changes_add(&watched->changes, CREATED, path);
    if (watched->is_recursive && event->mask & IN_ISDIR && !enter(watched, path, true))
        watched->error = errno;
}

/*
 * True for an upload's file without a name, which the kernel reports by its inode: `#47`. A user's file may
 * have such a name, and then exists.
 */
static bool is_unnamed(const struct watched *watched, const char *name, const char *path)
{
    if (name[0] != '#' || name[1] == '\0' || name[1 + strspn(name + 1, "0123456789")] != '\0')
        return false;
    char *whole = absolute(watched, path);
    struct stat about;
    bool is_absent = lstat(whole, &about) < 0 && errno == ENOENT;
    free(whole);
    return is_absent;
}

void watched_handle(struct watched *watched, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW) {
        watched->has_lost = true;
        return;
    }
    if (event->mask & IN_IGNORED) {
        forget(watched, event->wd);
        return;
    }
    const struct directory *directory = find(watched, event->wd);
    /* Changes of the directory itself are reported by the one above. */
    if (directory == NULL || event->len == 0 || is_temporary(event->name))
        return;
    char *path = joined(directory->name, event->name);
    if (event->mask & (IN_CREATE | IN_MOVED_TO))
        appeared(watched, path, event);
    if (event->mask & (IN_MODIFY | IN_ATTRIB) && !is_unnamed(watched, event->name, path))
        changes_add(&watched->changes, event->mask & IN_MODIFY ? WRITTEN : CHMODDED, path);
    if (event->mask & IN_DELETE)
        changes_add(&watched->changes, REMOVED, path);
    if (event->mask & IN_MOVED_FROM) {
        changes_add(&watched->changes, RENAMED, path);
        if (watched->is_recursive && event->mask & IN_ISDIR)
            leave(watched, path);
    }
    free(path);
}
