#include "deployed.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"

static void check_directory(const char *path)
{
    if (path[0] != '/')
        fail_start(AS_ASKED, "deploy dir is empty: codePath must be an absolute path inside the sandbox, not '%s'", path);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        if (errno == ENOENT || errno == ENOTDIR)
            fail_start(AS_ASKED, "deploy dir is empty: %s does not exist; mount the code with target %s", path, path);
        /* The directory may be searchable but not readable. */
        return;
    }
    bool is_empty = true;
    for (struct dirent *entry; is_empty && (entry = readdir(directory)) != NULL;)
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(directory);
    if (is_empty)
        fail_start(AS_ASKED, "deploy dir is empty: there is nothing in %s", path);
}

/* A child checks as the user. */
static bool may_execute(const char *path, const struct identity *user)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        bool is_user = syscall(SYS_setgroups, user->group_count, user->groups) == 0 &&
                       syscall(SYS_setresgid, user->gid, user->gid, user->gid) == 0 &&
                       syscall(SYS_setresuid, user->uid, user->uid, user->uid) == 0;
        _exit(is_user && access(path, X_OK) == 0 ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

void check_deployed(const struct json *command, const struct identity *user, bool sets_ids)
{
    const struct json *argv = json_get(command, "argv");
    char *directory = json_bytes(json_get(command, "deployDir"));
    char *path = argv->count > 0 && argv->items[0].kind == JSON_STRING ? json_bytes(&argv->items[0]) : NULL;
    struct stat about;
    if (directory == NULL || path == NULL)
        fail_start(AS_ASKED, "the path of the program cannot be that of a file");
    check_directory(directory);
    if (stat(path, &about) < 0)
        fail_start(AS_ASKED, "there is no program %s", path);
    if (!S_ISREG(about.st_mode) || (about.st_mode & 0111) == 0)
        fail_start(AS_ASKED, "%s is not an executable file", path);
    if (user->uid != 0 && sets_ids && !may_execute(path, user))
        fail_start(AS_ASKED, "%s (uid %u) may not execute %s: look at its mode and at those of the directories above it", user->name,
                   (unsigned)user->uid, path);
    free(directory);
    free(path);
}
