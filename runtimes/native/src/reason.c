#include "reason.h"

#include <errno.h>
#include <string.h>

/* Errors for which the linked libc has other words than glibc. */
static const struct {
    int number;
    const char *words;
} WORDS[] = {
    {EBUSY, "Device or resource busy"},
    {EDQUOT, "Disk quota exceeded"},
    {EIO, "Input/output error"},
    {ELOOP, "Too many levels of symbolic links"},
    {EMFILE, "Too many open files"},
    {ENAMETOOLONG, "File name too long"},
    {ENFILE, "Too many open files in system"},
    {ENOMEM, "Cannot allocate memory"},
    {EOPNOTSUPP, "Operation not supported"},
    {ESTALE, "Stale file handle"},
    {EXDEV, "Invalid cross-device link"},
};

const char *reason_of(int number)
{
    for (size_t index = 0; index < sizeof WORDS / sizeof *WORDS; index++) {
        if (WORDS[index].number == number)
            return WORDS[index].words;
    }
    return strerror(number);
}

const char *code_of(int number)
{
    /* Out of disk space, memory, descriptors or processes. */
    static const int shortages[] = {ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE, EAGAIN};
    for (size_t index = 0; index < sizeof shortages / sizeof *shortages; index++) {
        if (shortages[index] == number)
            return "unavailable";
    }
    return "internal";
}
