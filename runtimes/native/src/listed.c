#include "listed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"
#include "facts.h"

enum { FIELDS = 7, FIRST_USER_ID = 1000, LAST_USER_ID = 60000 };

static const char USERS[] = "/etc/passwd", GROUPS[] = "/etc/group";
static const char USER[] = "user", USER_HOME[] = "/home/user";

/* Reads an id. Returns false unless the text is one. */
static bool read_id(const char *text, unsigned *id)
{
    char *end = "";
    errno = 0;
    unsigned long number = text != NULL && text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : UINT32_MAX;
    *id = (unsigned)number;
    return errno == 0 && number < UINT32_MAX && *end == '\0';
}

/* Splits the next line at its colons. Missing fields are NULL. Returns false after the last line. */
static bool next_line(char **rest, char *fields[FIELDS])
{
    char *line = strsep(rest, "\n");
    for (int index = 0; index < FIELDS; index++)
        fields[index] = line == NULL ? NULL : strsep(&line, ":");
    return fields[0] != NULL;
}

static const char *shell_of_image(void)
{
    return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
}

bool find_listed_account(const char *name, struct account *found)
{
    char *fields[FIELDS], *rest = read_names_file(USERS);
    while (next_line(&rest, fields)) {
        unsigned uid, gid;
        if (strcmp(fields[0], name) != 0 || name[0] == '\0' || !read_id(fields[2], &uid) || !read_id(fields[3], &gid))
            continue;
        const char *home = fields[5] != NULL && fields[5][0] == '/' ? fields[5] : "/";
        const char *shell = fields[6] != NULL && fields[6][0] == '/' ? fields[6] : shell_of_image();
        *found = (struct account){uid, gid, fields[0], home, shell};
        return true;
    }
    *found = (struct account){0, 0, "root", "/root", shell_of_image()};
    return strcmp(name, found->name) == 0;
}

size_t find_listed_groups(const struct account *account, gid_t *groups, size_t most)
{
    size_t count = 0;
    char *fields[FIELDS], *rest = read_names_file(GROUPS);
    groups[count++] = account->gid;
    while (next_line(&rest, fields)) {
        unsigned gid;
        if (count == most || fields[3] == NULL || !read_id(fields[2], &gid) || gid == account->gid)
            continue;
        for (char *member; (member = strsep(&fields[3], ",")) != NULL;) {
            if (strcmp(member, account->name) != 0)
                continue;
            groups[count++] = gid;
            break;
        }
    }
    return count;
}

/* Furnishing */

/* True if a line of the file has this name, or this id. */
static bool is_listed(const char *file, const char *name, unsigned id)
{
    char *text = read_names_file(file), *fields[FIELDS], *rest = text;
    bool is_found = false;
    while (!is_found && next_line(&rest, fields)) {
        unsigned known;
        is_found = name != NULL ? strcmp(fields[0], name) == 0 : read_id(fields[2], &known) && known == id;
    }
    free(text);
    return is_found;
}

/* Appends a line, after the end of a last line that has none. */
static bool append_line(const char *file, const struct buffer *line)
{
    char last = '\n';
    struct stat about;
    int target = open(file, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (target < 0)
        return false;
    bool is_good = fstat(target, &about) == 0;
    if (is_good && about.st_size > 0)
        is_good = pread(target, &last, 1, about.st_size - 1) == 1 && (last == '\n' || write(target, "\n", 1) == 1);
    is_good = is_good && write(target, line->data, line->size) == (ssize_t)line->size;
    int number = errno;
    close(target);
    errno = number;
    return is_good;
}

static bool add_account(const char *name, unsigned id, const char *home)
{
    struct buffer user = {0}, group = {0};
    buffer_format(&user, "%s:x:%u:%u:%s:%s:%s\n", name, id, id, name, home, shell_of_image());
    buffer_format(&group, "%s:x:%u:\n", name, id);
    bool is_good = append_line(USERS, &user) && (is_listed(GROUPS, NULL, id) || append_line(GROUPS, &group));
    buffer_free(&user);
    buffer_free(&group);
    return is_good;
}

/* Makes a home unless it exists, or an image names one in a directory that it lacks. */
static bool make_home(const struct account *account, mode_t mode)
{
    if (strcmp(account->home, USER_HOME) == 0 && mkdir("/home", 0755) < 0 && errno != EEXIST)
        return false;
    if (mkdir(account->home, mode) < 0)
        return errno == EEXIST || errno == ENOENT;
    return chown(account->home, account->uid, account->gid) == 0;
}

bool furnish_accounts(void)
{
    struct account root, user;
    unsigned id = FIRST_USER_ID;
    if (mkdir("/etc", 0755) < 0 && errno != EEXIST)
        return false;
    if (!is_listed(USERS, "root", 0) && !add_account("root", 0, "/root"))
        return false;
    while (id < LAST_USER_ID && (is_listed(USERS, NULL, id) || is_listed(GROUPS, NULL, id)))
        id++;
    if (!is_listed(USERS, USER, 0) && !add_account(USER, id, USER_HOME))
        return false;
    return find_listed_account("root", &root) && make_home(&root, 0700) && find_listed_account(USER, &user) && make_home(&user, 0755);
}
