/* The modes and times of entries of the file system, as answers state them. */
#ifndef ENTRIES_H
#define ENTRIES_H

#include <sys/stat.h>

enum {
    PERMISSIONS = 07777,
    /* The mode bits that a caller may set: without setuid and setgid. */
    GIVEN_PERMISSIONS = 01777,
};

static inline long long modified_ms(const struct stat *about)
{
    return (long long)about->st_mtim.tv_sec * 1000 + about->st_mtim.tv_nsec / 1000000;
}

#endif
