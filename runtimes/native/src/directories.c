#include "directories.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entries.h"
#include "facts.h"
#include "frames.h"
#include "refusals.h"

enum {
    /* The most entries of a list, even if the caller requests more. */
    MOST_LIST_BYTES = 16777216,
    ENTRIES_BETWEEN_LOOKS = 500,
};

struct entry {
    char *path;
    long depth;
    mode_t mode;
    long long size, modified_at_ms;
};

/* A priority queue with the smallest path first. Entries beyond `most` are discarded from time to time. */
struct queue {
    struct entry *entries;
    size_t count, capacity;
    bool is_cut;
};

static int compare_entries(const void *one, const void *other)
{
    return strcmp(((const struct entry *)one)->path, ((const struct entry *)other)->path);
}

/* An empty list is NULL, which `qsort` must not get. */
static void sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *))
{
    if (count > 1)
        qsort(items, count, size, compare);
}

static int compare_names(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* A binary heap with the smallest entry first. */
static void sink(struct queue *queue, size_t index)
{
    for (;;) {
        size_t least = index, child = 2 * index + 1;
        for (size_t next = child; next < child + 2 && next < queue->count; next++) {
            if (compare_entries(&queue->entries[next], &queue->entries[least]) < 0)
                least = next;
        }
        if (least == index)
            return;
        struct entry held = queue->entries[index];
        queue->entries[index] = queue->entries[least];
        queue->entries[least] = held;
        index = least;
    }
}

static void push(struct queue *queue, struct entry entry)
{
    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity ? queue->capacity * 2 : 64;
        queue->entries = reallocate(queue->entries, queue->capacity * sizeof *queue->entries);
    }
    size_t index = queue->count++;
    queue->entries[index] = entry;
    while (index > 0 && compare_entries(&queue->entries[index], &queue->entries[(index - 1) / 2]) < 0) {
        struct entry held = queue->entries[index];
        queue->entries[index] = queue->entries[(index - 1) / 2];
        queue->entries[(index - 1) / 2] = held;
        index = (index - 1) / 2;
    }
}

static struct entry pop(struct queue *queue)
{
    struct entry first = queue->entries[0];
    queue->entries[0] = queue->entries[--queue->count];
    sink(queue, 0);
    return first;
}

static void cut(struct queue *queue, size_t most)
{
    /* A sorted array is a heap. */
    sort(queue->entries, queue->count, sizeof *queue->entries, compare_entries);
    while (queue->count > most)
        free(queue->entries[--queue->count].path);
    queue->is_cut = true;
}

static size_t keep_smallest(char **names, size_t count, size_t most)
{
    sort(names, count, sizeof *names, compare_names);
    while (count > most)
        free(names[--count]);
    return count;
}

char **names_in(DIR *directory, size_t most, size_t *count, bool *is_cut)
{
    size_t capacity = 0;
    char **names = NULL;
    *count = 0;
    for (struct dirent *one; (one = readdir(directory)) != NULL;) {
        if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0)
            continue;
        if (*count == capacity && capacity > 2 * most) {
            *count = keep_smallest(names, *count, most);
            *is_cut = true;
        } else if (*count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            names = reallocate(names, capacity * sizeof *names);
        }
        size_t size = strlen(one->d_name) + 1;
        names[*count] = memcpy(allocate(size), one->d_name, size);
        *count += 1;
    }
    *is_cut = *is_cut || *count > most;
    *count = keep_smallest(names, *count, most);
    return names;
}

/* Adds the entries of a directory to the queue, and closes the descriptor. */
static void add_children(struct queue *queue, int descriptor, const char *path, long depth, size_t most)
{
    DIR *directory = fdopendir(descriptor);
    if (directory == NULL) {
        close(descriptor);
        return;
    }
    size_t count;
    char **names = names_in(directory, most, &count, &queue->is_cut);
    bool ends_with_slash = path[strlen(path) - 1] == '/';
    for (size_t index = 0; index < count; index++) {
        struct stat about;
        /* Omits an entry that was removed in the meantime. */
        if (fstatat(descriptor, names[index], &about, AT_SYMLINK_NOFOLLOW) == 0) {
            struct buffer inside = {0};
            buffer_format(&inside, "%s%s%s", path, ends_with_slash ? "" : "/", names[index]);
            push(queue, (struct entry){inside.data, depth, about.st_mode, (long long)about.st_size, modified_ms(&about)});
        }
        free(names[index]);
    }
    free(names);
    closedir(directory);
}

char *normal(const char *path)
{
    struct buffer made = {0};
    for (const char *part = path; *part != '\0';) {
        size_t size = strcspn(part, "/");
        if (size == 2 && memcmp(part, "..", 2) == 0) {
            while (made.size > 0 && made.data[--made.size] != '/')
                ;
        } else if (size > 0 && !(size == 1 && *part == '.')) {
            buffer_add(&made, "/", 1);
            buffer_add(&made, part, size);
        }
        part += size + (part[size] == '/');
    }
    if (made.size == 0)
        buffer_add(&made, "/", 1);
    buffer_add(&made, "", 1);
    return made.data;
}

/* Returns the absolute path that prefixes the names of the entries. */
static char *top_of(const char *path)
{
    struct buffer whole = {0};
    char directory[PATH_MAX];
    if (path[0] != '/' && getcwd(directory, sizeof directory) != NULL)
        buffer_format(&whole, "%s/", directory);
    buffer_format(&whole, "%s", path);
    buffer_add(&whole, "", 1);
    /* After a symbolic link, `..` does not lead to the previous part of the text. */
    bool has_parent = false;
    for (const char *at = whole.data; (at = strstr(at, "..")) != NULL; at += 2)
        has_parent = has_parent || ((at == whole.data || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'));
    char *resolved = has_parent ? realpath(whole.data, NULL) : NULL;
    return resolved ? resolved : normal(whole.data);
}

bool has_left(int connection)
{
    struct pollfd wait = {connection, POLLIN, 0};
    return poll(&wait, 1, 0) > 0;
}

void list_directory(int connection, const char *path, const struct json *request)
{
    size_t most = (size_t)json_number(request, "maxEntries"), found = 0, size = 0;
    long deepest = (long)json_number(request, "maxDepth");
    const char *top = top_of(path);
    struct stat about;
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 && errno == ENOTDIR && stat(path, &about) == 0) {
        refuse(connection, "invalid_request", "%s is not a directory", shown(path));
        return;
    }
    if (descriptor < 0)
        refuse_error(connection, errno, path, "listed");
    struct buffer answer = {0};
    struct queue queue = {0};
    buffer_format(&answer, "{\"ok\":true,\"entries\":[");
    /* Keeps the smallest entries: as many as the list may still take, and one more to detect truncation. */
    add_children(&queue, descriptor, top, 1, most + 1);
    while (queue.count > 0 && found < most && size < MOST_LIST_BYTES) {
        struct entry one = pop(&queue);
        buffer_format(&answer, "%s[", found ? "," : "");
        json_write_bytes(&answer, one.path);
        buffer_format(&answer, ",\"%s\",%lld,%u,%lld]", kind_of(one.mode), one.size, (unsigned)one.mode & PERMISSIONS,
                      one.modified_at_ms);
        size += strlen(one.path) + 64;
        if (++found % ENTRIES_BETWEEN_LOOKS == 0 && has_left(connection))
            return;
        if (S_ISDIR(one.mode) && one.depth < deepest) {
            size_t missing = most - found + 1;
            /* A directory that is removed or unreadable has its own entry already. */
            int inside = open(one.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
            if (inside >= 0)
                add_children(&queue, inside, one.path, one.depth + 1, missing);
            if (queue.count > 2 * missing)
                cut(&queue, missing);
        }
        free(one.path);
    }
    buffer_format(&answer, "],\"truncated\":%s}", queue.count > 0 || queue.is_cut ? "true" : "false");
    send_frame(connection, answer.data, answer.size);
}

static bool is_directory(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Makes each missing directory from the top. One that another process makes at the same time is accepted. */
static void make_parents(int connection, char *path, mode_t mode)
{
    for (char *end = path;; end++) {
        end += strcspn(end, "/");
        char held = *end;
        *end = '\0';
        if (path[0] != '\0' && mkdir(path, held == '\0' ? mode : 0755) < 0) {
            int number = errno;
            /* An existing file is no obstacle, even a read-only one. */
            if (number == EEXIST && !is_directory(path)) {
                refuse(connection, "already_exists", "%s already exists and is not a directory", shown(path));
                _exit(0);
            }
            if (number != EEXIST && !is_directory(path))
                refuse_error(connection, number, path, "made");
        }
        *end = held;
        if (held == '\0')
            return;
    }
}

void make_directory(int connection, const char *path, const struct json *request)
{
    const struct json *asked = json_get(request, "mode");
    mode_t mode = asked->kind == JSON_NUMBER ? (mode_t)asked->number & GIVEN_PERMISSIONS : 0755;
    bool is_recursive = json_is_true(request, "recursive");
    char *made = copy_text(path, strlen(path));
    /* Sets exactly the requested mode. */
    umask(0);
    for (size_t size = strlen(made); size > 1 && made[size - 1] == '/'; size--)
        made[size - 1] = '\0';
    if (mkdir(made, mode) < 0) {
        if (errno == EEXIST) {
            if (!is_recursive || !is_directory(made)) {
                refuse(connection, "already_exists", "%s already exists", shown(made));
                return;
            }
        } else if ((errno != ENOENT && errno != ENOTDIR) || !is_recursive) {
            refuse_error(connection, errno, made, "made");
        } else {
            make_parents(connection, made, mode);
        }
    }
    send_format(connection, "{\"ok\":true}");
}
