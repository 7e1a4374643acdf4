/*
 * Serves one file request for an account (`src/sandbox/files.ts`). Code inside may change what is at a path
 * at any time, which leads only to other entries of the sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access.h"
#include "facts.h"
#include "files.h"
#include "frames.h"
#include "owner.h"
#include "refusals.h"
#include "tree.h"

static void answer_facts(int connection, int above, const char *name, const char *path)
{
    struct buffer answer = {0};
    buffer_format(&answer, "{\"ok\":true,\"facts\":");
    if (!add_facts(&answer, above, name, path))
        refuse_error(connection, errno, path, "found");
    buffer_add(&answer, "}", 1);
    send_frame(connection, answer.data, answer.size);
}

/* Opens the directory above, or refuses the request. */
static int enter_above(int connection, const char *path, const struct owner *owner, const char *doing, const char **name)
{
    int above = open_above(path, owner, name);
    if (above < 0 && errno == ENOTDIR && owner != NULL) {
        refuse(connection, "invalid_request", "%s cannot be %s: a part of the path is not a directory", shown(path), doing);
        _exit(0);
    }
    if (above < 0)
        refuse_error(connection, errno, path, doing);
    return above;
}

static void stat_entry(int connection, const char *path)
{
    const char *name;
    int above = enter_above(connection, path, NULL, "found", &name);
    answer_facts(connection, above, name, path);
}

static void make_entry(int connection, const char *path, const struct owner *owner)
{
    struct stat about;
    const char *name;
    int above = enter_above(connection, path, owner, "made", &name);
    if (mkdirat(above, name, 0755) < 0) {
        int number = errno;
        if (number != EEXIST)
            refuse_error(connection, number, path, "made");
        if (fstatat(above, name, &about, 0) == 0 && S_ISDIR(about.st_mode))
            refuse(connection, "already_exists", "%s already exists", shown(path));
        else
            refuse(connection, "invalid_request", "%s already exists and is not a directory", shown(path));
        return;
    }
    int made = openat(above, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made < 0 || !give_to(owner, made))
        refuse_error(connection, errno, path, "made");
    answer_facts(connection, above, name, path);
}

static void rename_entry(int connection, const char *path, const struct json *request, const struct owner *owner)
{
    const char *name, *new_name, *target = locate(connection, request, "to", owner);
    int above = enter_above(connection, path, NULL, "renamed", &name);
    struct stat about;
    /* Before the parents of the target are made. */
    if (fstatat(above, name, &about, AT_SYMLINK_NOFOLLOW) < 0)
        refuse_error(connection, errno, path, "renamed");
    int new_above = enter_above(connection, target, owner, "made", &new_name);
    if (renameat(above, name, new_above, new_name) < 0) {
        if (errno == EXDEV)
            refuse(connection, "failed_precondition", "%s and %s are on different file systems", shown(path), shown(target));
        else
            refuse_error(connection, errno, target, "replaced");
        return;
    }
    answer_facts(connection, new_above, new_name, target);
}

static void remove_entry(int connection, const char *path)
{
    const char *name;
    int above = open_above(path, NULL, &name);
    if (above < 0 && errno != ENOENT && errno != ENOTDIR)
        refuse_error(connection, errno, path, "removed");
    if (above >= 0 && !remove_tree(connection, above, name))
        refuse_error(connection, errno, path, "removed");
    send_format(connection, "{\"ok\":true}");
}

/* Opens the file to overwrite, or makes it. Returns -1 with errno. */
static int open_in_place(int connection, int above, const char *name, const char *path)
{
    struct stat about;
    int made = openat(above, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (made >= 0 || errno != EEXIST)
        return made;
    /* Opening a pipe or a device can have effects, so its type is checked first. */
    if (fstatat(above, name, &about, 0) < 0) {
        /* A link whose target does not exist: the target is made. */
        return errno == ENOENT ? openat(above, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644) : -1;
    }
    demand_regular(connection, about.st_mode, path);
    return openat(above, name, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static void write_in_place(int connection, const char *path, const struct json *request, const struct owner *owner)
{
    const struct json *metadata = json_get(request, "metadata");
    struct upload file = {.connection = connection, .path = path, .parent = -1};
    struct stat about;
    const char *name;
    unsigned long long size;
    int above = enter_above(connection, path, owner, "written", &name);
    file.descriptor = open_in_place(connection, above, name, path);
    if (file.descriptor < 0 || fstat(file.descriptor, &about) < 0)
        fail_upload(&file, errno);
    demand_regular(connection, about.st_mode, path);
    /* A new file of size 0 must not report a change before its owner does. */
    if (about.st_size > 0 && ftruncate(file.descriptor, 0) < 0)
        fail_upload(&file, errno);
    if (!give_to(owner, file.descriptor))
        fail_upload(&file, errno);
    if (metadata->kind == JSON_OBJECT && !replace_metadata(file.descriptor, metadata)) {
        if (errno != EOPNOTSUPP)
            fail_upload(&file, errno);
        refuse(connection, "failed_precondition", "the file system of %s stores no metadata", shown(path));
        return;
    }
    if (receive_upload(&file, &size))
        answer_facts(connection, above, name, path);
}

_Noreturn void serve_account_files(int connection, const struct json *request, const struct owner *owner)
{
    const char *operation = json_text(request, "op");
    const char *path = locate(connection, request, "path", owner);
    struct buffer sentence = {0};
    buffer_format(&sentence, "the memory of the sandbox is not enough for %s", shown(path));
    refuse_when_without_memory(connection, sentence.data);
    if (strcmp(operation, "stat") == 0)
        stat_entry(connection, path);
    else if (strcmp(operation, "open") == 0)
        read_file(connection, path, true);
    else if (strcmp(operation, "write") == 0)
        write_in_place(connection, path, request, owner);
    else if (strcmp(operation, "list") == 0)
        list_tree(connection, path, request);
    else if (strcmp(operation, "mkdir") == 0)
        make_entry(connection, path, owner);
    else if (strcmp(operation, "rename") == 0)
        rename_entry(connection, path, request, owner);
    else if (strcmp(operation, "remove") == 0)
        remove_entry(connection, path);
    else
        refuse(connection, "internal", "a sandbox has no file operation %s", operation);
    _exit(0);
}
