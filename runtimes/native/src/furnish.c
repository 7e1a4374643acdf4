#include "furnish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "restrict.h"

enum { MOST_OPEN_DIRECTORIES = 8 };

/* Keeps the variables of the sandbox, unlike those of most hosts. */
static const char PROFILE[] = "umask 022\n"
                              "[ -z \"${PS1-}\" ] || PS1='\\u@\\h:\\w\\$ '\n";
/* Names of files below /run/e2b, and of the variables with their content. */
static const char *const MARKS[] = {"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"};

static char path[PATH_MAX];

static const char *below(const char *root, const char *in, const char *name)
{
    snprintf(path, sizeof path, "%s/%s%s", root, in, name);
    return path;
}

static bool write_file(const char *file, const char *text)
{
    int target = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool is_written = target >= 0 && write(target, text, strlen(text)) == (ssize_t)strlen(text);
    close(target);
    return is_written;
}

/* Copying the template of /etc */

static bool copy_file(int from, int to, const char *name, off_t left)
{
    int source = openat(from, name, O_RDONLY | O_CLOEXEC), target = openat(to, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool is_copied = source >= 0 && target >= 0;
    while (is_copied && left > 0) {
        ssize_t count = sendfile(target, source, NULL, (size_t)left);
        is_copied = count >= 0;
        /* The service has shortened the file in the meantime. */
        if (count == 0)
            break;
        left -= count;
    }
    close(source);
    close(target);
    return is_copied;
}

static bool copy_link(int from, int to, const char *name)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(from, name, target, sizeof target - 1);
    if (size < 0)
        return false;
    target[size] = '\0';
    return symlinkat(target, to, name) == 0;
}

static bool is_bound(const struct json *plan, const char *within, const char *name)
{
    const struct json *directories = json_get(plan, "etcDirectories");
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", within, name);
    for (size_t index = 0; index < directories->count; index++) {
        if (strcmp(directories->items[index].text, whole) == 0)
            return true;
    }
    return false;
}

/*
 * Copies the directory at `within` of the template, without the content of directories that are bound later.
 * Closes `from` and `to`.
 */
static bool copy_directory(const struct json *plan, int from, int to, const char *within)
{
    struct stat about;
    char deeper[PATH_MAX];
    DIR *all = from < 0 || to < 0 ? NULL : fdopendir(from);
    bool is_copied = all != NULL;
    errno = 0;
    for (struct dirent *entry; is_copied && (entry = readdir(all)) != NULL; errno = 0) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(from, name, &about, AT_SYMLINK_NOFOLLOW) < 0)
            is_copied = false;
        else if (S_ISLNK(about.st_mode))
            is_copied = copy_link(from, to, name);
        else if (S_ISREG(about.st_mode))
            is_copied = copy_file(from, to, name, about.st_size);
        else if (S_ISDIR(about.st_mode) && mkdirat(to, name, 0755) < 0)
            is_copied = false;
        else if (S_ISDIR(about.st_mode) && !is_bound(plan, within, name) &&
                 snprintf(deeper, sizeof deeper, "%s%s/", within, name) < (int)sizeof deeper)
            is_copied = copy_directory(plan, openat(from, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW),
                                       openat(to, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), deeper);
    }
    int error = errno;
    if (all != NULL)
        closedir(all);
    else
        close(from);
    close(to);
    errno = error;
    return is_copied;
}

static bool bind_directories(const struct json *plan, const char *root)
{
    const struct json *directories = json_get(plan, "etcDirectories");
    char source[PATH_MAX];
    for (size_t index = 0; index < directories->count; index++) {
        const char *name = directories->items[index].text;
        snprintf(source, sizeof source, "/etc/%s", name);
        if (mount(source, below(root, "etc/", name), NULL, MS_BIND | MS_REC, NULL) < 0 || !restrict_mount(path, true))
            return false;
    }
    return true;
}

static bool write_accounts(const char *root, bool is_one, uid_t one)
{
    char users[256], groups[128];
    unsigned root_id = is_one && one != 1000 ? one : 0, user_id = is_one && one == 0 ? 0 : 1000;
    snprintf(users, sizeof users,
             "root:x:%u:%u:root:/root:/bin/bash\nuser:x:%u:%u:user:/home/user:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
             root_id, root_id, user_id, user_id);
    snprintf(groups, sizeof groups, "root:x:%u:\ntty:x:5:\nusers:x:100:\nuser:x:%u:\nnogroup:x:65534:\n", root_id, user_id);
    return write_file(below(root, "etc/", "passwd"), users) && write_file(below(root, "etc/", "group"), groups) &&
           write_file(below(root, "etc/", "profile"), PROFILE);
}

/*
 * Mounts over the shared directory, because an unmount waits for all processors. `from` still shows that
 * directory, with the resolv.conf of the sandbox.
 */
static bool mount_etc(const char *root, const char *size, int *from, int *to)
{
    char options[64];
    snprintf(options, sizeof options, "mode=755,%s", size);
    *from = open(below(root, "", "etc"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*from < 0 || mount("rookery", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return false;
    *to = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *to >= 0;
}

bool furnish_etc(const struct json *plan, const char *root, const struct account_ids *ids, uid_t one, const char *size)
{
    int from, to;
    return mount_etc(root, size, &from, &to) && copy_directory(plan, from, to, "") && write_accounts(root, ids == NULL, one) &&
           bind_directories(plan, root);
}

/* Ownership */

static const char *top;
static const struct account_ids *owners;

static int give(const char *file, const struct stat *about, int kind, struct FTW *place)
{
    size_t size = strlen(top);
    (void)about;
    (void)kind;
    (void)place;
    /* The devices belong to the host. */
    if (strncmp(file + size, "/dev", 4) == 0)
        return 0;
    bool is_home = strncmp(file + size, "/home/user", 10) == 0;
    unsigned owner = is_home ? owners->user : owners->root;
    return lchown(file, owner, owner);
}

static bool make_directory(const char *directory, mode_t mode)
{
    return (mkdir(directory, mode) == 0 || errno == EEXIST);
}

bool furnish_homes(const char *root, const struct account_ids *ids, const struct json *env)
{
    if (!make_directory(below(root, "home/", "user"), 0755) || !make_directory(below(root, "run/", "e2b"), 0755) ||
        chmod(below(root, "", "root"), 0700) < 0)
        return false;
    for (size_t index = 0; index < sizeof MARKS / sizeof *MARKS; index++) {
        char name[32];
        snprintf(name, sizeof name, ".%s", MARKS[index]);
        if (!write_file(below(root, "run/e2b/", name), json_text(env, MARKS[index])))
            return false;
    }
    top = root;
    owners = ids;
    if (ids == NULL)
        return true;
    /* /etc is a file system of its own. */
    char etc[PATH_MAX];
    snprintf(etc, sizeof etc, "%s", below(root, "", "etc"));
    return nftw(root, give, MOST_OPEN_DIRECTORIES, FTW_PHYS | FTW_MOUNT) == 0 && nftw(etc, give, MOST_OPEN_DIRECTORIES, FTW_PHYS | FTW_MOUNT) == 0;
}
