#include "restrict.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SYS_MOUNT_SETATTR = 442,
    RECURSIVE = 0x8000,
    ATTR_RDONLY = 1,
    ATTR_NOSUID = 2,
    ATTR_NODEV = 4,
    POINT_FIELD = 4,
};

static bool restrict_one(const char *path, bool is_readonly)
{
    struct statvfs about;
    if (statvfs(path, &about) < 0)
        return false;
    /* Keeps the existing flags, whose numbers are equal in both calls. */
    unsigned long flags = about.f_flag & (MS_NOEXEC | MS_NOSUID | MS_NODEV | MS_RDONLY);
    flags |= MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (is_readonly ? MS_RDONLY : 0);
    return mount(NULL, path, NULL, flags, NULL) == 0;
}

/* Decodes in place: a backslash and three octal digits are one byte. */
static void unescape(char *text)
{
    char *target = text;
    while (*text != '\0') {
        if (text[0] == '\\' && strspn(text + 1, "01234567") >= 3) {
            *target++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 4;
        } else {
            *target++ = *text++;
        }
    }
    *target = '\0';
}

/* For kernels before 5.12: one mount at a time. */
static bool restrict_each(const char *target, bool is_readonly)
{
    char point[PATH_MAX], *line = NULL;
    size_t capacity = 0;
    bool is_good = true, is_found = false;
    FILE *table = realpath(target, point) == NULL ? NULL : fopen("/proc/self/mountinfo", "re");
    if (table == NULL)
        return false;
    size_t size = strlen(point);
    while (is_good && getline(&line, &capacity, table) > 0) {
        char *rest = line, *field = strsep(&rest, " ");
        for (int index = 0; index < POINT_FIELD && field != NULL; index++)
            field = strsep(&rest, " ");
        if (field == NULL)
            continue;
        unescape(field);
        if (strcmp(field, point) != 0 && (strncmp(field, point, size) != 0 || field[size] != '/'))
            continue;
        is_found = true;
        is_good = restrict_one(field, is_readonly);
    }
    free(line);
    fclose(table);
    return is_found ? is_good : restrict_one(point, is_readonly);
}

bool restrict_mount(const char *target, bool is_readonly)
{
    uint64_t request[4] = {ATTR_NOSUID | ATTR_NODEV | (is_readonly ? ATTR_RDONLY : 0)};
    return syscall(SYS_MOUNT_SETATTR, AT_FDCWD, target, RECURSIVE, request, sizeof request) == 0 || restrict_each(target, is_readonly);
}
