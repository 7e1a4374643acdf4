#include "facts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "entries.h"

enum {
    /* The most that is read of a file with names, which code inside may have written. */
    MOST_NAMES_BYTES = 1048576,
    NAMES_STEP = 65536,
    /* The kernel's limits of the attributes of one file. */
    MOST_ATTRIBUTES = 65536,
};

static const char METADATA[] = "user.e2b.";
enum { METADATA_SIZE = sizeof METADATA - 1 };

/* Names of owners */

struct named {
    unsigned long id;
    /* The name, and what follows the id in its line; NULL if nothing does. */
    const char *name, *rest;
};

struct names {
    const char *file;
    bool is_read;
    struct named *all;
    size_t count;
};

static struct names users = {.file = "/etc/passwd"}, groups = {.file = "/etc/group"};

char *read_names_file(const char *file)
{
    struct buffer text = {0};
    struct stat about;
    int descriptor = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0)
        return NULL;
    if (fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode)) {
        ssize_t count;
        while (text.size < MOST_NAMES_BYTES && (count = read(descriptor, buffer_room(&text, NAMES_STEP), NAMES_STEP)) > 0)
            text.size += (size_t)count;
    }
    close(descriptor);
    buffer_add(&text, "", 1);
    return text.data;
}

static void read_names(struct names *names)
{
    size_t capacity = 0;
    char *rest = read_names_file(names->file);
    names->is_read = true;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *name = strsep(&line, ":"), *end;
        strsep(&line, ":");
        char *number = strsep(&line, ":");
        if (number == NULL || name[0] == '\0' || number[0] < '0' || number[0] > '9')
            continue;
        unsigned long id = strtoul(number, &end, 10);
        if (*end != '\0')
            continue;
        if (names->count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            names->all = reallocate(names->all, capacity * sizeof *names->all);
        }
        names->all[names->count++] = (struct named){id, name, line};
    }
}

/* Returns the first entry with this id, or NULL. */
static const struct named *find_named(struct names *names, unsigned long id)
{
    if (!names->is_read)
        read_names(names);
    for (size_t index = 0; index < names->count; index++) {
        if (names->all[index].id == id)
            return &names->all[index];
    }
    return NULL;
}

static void add_name(struct buffer *target, struct names *names, unsigned long id)
{
    const struct named *found = find_named(names, id);
    if (found != NULL)
        json_write_bytes(target, found->name);
    else
        buffer_format(target, "\"%lu\"", id);
}

struct listed_user find_listed_user(uid_t uid)
{
    const struct named *found = find_named(&users, uid);
    /* Group, comment, home and shell follow the id. */
    char *rest = found != NULL && found->rest != NULL ? copy_text(found->rest, strlen(found->rest)) : NULL;
    strsep(&rest, ":");
    strsep(&rest, ":");
    const char *home = strsep(&rest, ":");
    struct buffer number = {0};
    buffer_format(&number, "%u", (unsigned)uid);
    return (struct listed_user){found != NULL ? found->name : number.data, home != NULL && home[0] == '/' ? home : "/"};
}

/* Metadata */

static void add_value_of(struct buffer *target, const char *path, const char *name)
{
    static char value[MOST_ATTRIBUTES + 1];
    ssize_t size = lgetxattr(path, name, value, MOST_ATTRIBUTES);
    value[size > 0 ? size : 0] = '\0';
    json_write_bytes(target, value);
}

static void add_metadata(struct buffer *target, const char *path, mode_t mode)
{
    static char all[MOST_ATTRIBUTES];
    /* Only files and directories can have attributes of users. */
    ssize_t size = S_ISREG(mode) || S_ISDIR(mode) ? llistxattr(path, all, sizeof all) : 0;
    const char *separator = "";
    buffer_add(target, "{", 1);
    for (const char *name = all; name < all + size; name += strlen(name) + 1) {
        if (strncmp(name, METADATA, METADATA_SIZE) != 0)
            continue;
        buffer_format(target, "%s", separator);
        json_write_bytes(target, name + METADATA_SIZE);
        buffer_add(target, ":", 1);
        add_value_of(target, path, name);
        separator = ",";
    }
    buffer_add(target, "}", 1);
}

bool replace_metadata(int descriptor, const struct json *metadata)
{
    static char all[MOST_ATTRIBUTES];
    ssize_t size = flistxattr(descriptor, all, sizeof all);
    for (const char *name = all; name < all + size; name += strlen(name) + 1) {
        if (strncmp(name, METADATA, METADATA_SIZE) == 0 && fremovexattr(descriptor, name) < 0 && errno != ENODATA)
            return false;
    }
    for (size_t index = 0; index + 1 < metadata->count; index += 2) {
        const struct json *value = &metadata->items[index + 1];
        struct buffer name = {0};
        buffer_format(&name, "%s%s", METADATA, metadata->items[index].text);
        bool is_set = value->kind == JSON_STRING && fsetxattr(descriptor, name.data, value->text, value->size, 0) == 0;
        int number = errno;
        buffer_free(&name);
        errno = number;
        if (!is_set)
            return false;
    }
    return true;
}

/* Facts */

const char *kind_of(mode_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "symlink" : "other";
}

static void add_target(struct buffer *target, const char *path)
{
    struct stat about;
    char *resolved = realpath(path, NULL);
    if (resolved != NULL && lstat(resolved, &about) == 0) {
        buffer_add(target, "[", 1);
        json_write_bytes(target, resolved);
        buffer_format(target, ",\"%s\",%u,%lld]", kind_of(about.st_mode), (unsigned)about.st_mode & PERMISSIONS, (long long)about.st_size);
    } else {
        static char text[PATH_MAX];
        ssize_t size = readlink(path, text, sizeof text - 1);
        text[size > 0 ? size : 0] = '\0';
        buffer_add(target, "[", 1);
        json_write_bytes(target, text);
        buffer_format(target, ",null,0,0]");
    }
    free(resolved);
}

void add_known_facts(struct buffer *target, const struct stat *about, const char *path)
{
    buffer_add(target, "[", 1);
    json_write_bytes(target, path);
    buffer_format(target, ",\"%s\",%lld,%u,%lld,", kind_of(about->st_mode), (long long)about->st_size, (unsigned)about->st_mode & PERMISSIONS,
                  modified_ms(about));
    add_name(target, &users, about->st_uid);
    buffer_add(target, ",", 1);
    add_name(target, &groups, about->st_gid);
    buffer_add(target, ",", 1);
    add_metadata(target, path, about->st_mode);
    buffer_add(target, ",", 1);
    if (S_ISLNK(about->st_mode))
        add_target(target, path);
    else
        buffer_add(target, "null", 4);
    buffer_add(target, "]", 1);
}

bool add_facts(struct buffer *target, int directory, const char *name, const char *path)
{
    struct stat about;
    if (fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    add_known_facts(target, &about, path);
    return true;
}
