/*
 * System calls for the native program and for the library that forks workers (`../fork`). Uses only symbols
 * that every process with that library has. All functions fail with errno.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes a text into a file of the kernel. */
bool write_to(const char *path, const char *text);

#define CAPABILITY(number) (UINT64_C(1) << (number))
#define EVERY_CAPABILITY UINT64_MAX
/* Keeps these of the permitted capabilities, and none for executed programs. */
bool keep_capabilities(uint64_t capabilities);
/*
 * Drops capabilities and file privileges for all programs that are executed later. This process keeps its own
 * rights.
 */
bool drop_privileges(bool drops_capabilities, bool has_no_new_privileges);
/* Installs a filter of system calls in the kernel's format. */
bool filter_calls(const void *filter, size_t size);

enum { MOST_PASSED = 4 };
/* Sends `size` bytes and these descriptors in one message. */
bool send_with(int connection, const void *data, size_t size, const int *descriptors, int count);
/*
 * Receives a message of this size. Returns the count of its descriptors; -1 if there is no message, or one of
 * another size.
 */
int receive_with(int connection, void *data, size_t size, int *descriptors, int most);

#endif
