/* What the ways to files share (`files.c`, `directories.c`). */
#ifndef FILES_H
#define FILES_H

#include <sys/stat.h>

enum {
    PERMISSIONS = 07777,
    /* What may be asked for. Bits that give a program the rights of its owner are nobody's to give away here. */
    GIVEN_PERMISSIONS = 01777,
};

static inline long long modified_ms(const struct stat *about)
{
    return (long long)about->st_mtim.tv_sec * 1000 + about->st_mtim.tv_nsec / 1000000;
}

#endif
