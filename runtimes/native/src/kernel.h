/*
 * What the native program and the library that forks workers (`../fork`) both ask the kernel for. It needs no more of a libc than every process
 * has that loads that library. Each fails with errno.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A text into a file of the kernel's. */
bool write_to(const char *path, const char *text);

#define CAPABILITY(number) (UINT64_C(1) << (number))
#define EVERY_CAPABILITY UINT64_MAX
/* These of what is permitted, and nothing for what is executed. */
bool keep_capabilities(uint64_t capabilities);
/* What no program that is executed later can get back: capabilities, and privileges of files. The rights of this process itself stay. */
bool drop_privileges(bool drops_capabilities, bool has_no_new_privileges);
/* A filter of system calls as the kernel takes it. */
bool filter_calls(const void *filter, size_t size);

enum { MOST_PASSED = 4 };
/* `size` bytes and these descriptors, in one message. */
bool send_with(int connection, const void *data, size_t size, const int *descriptors, int count);
/* A message of this size and the descriptors that came along: how many; -1 when there is none, or another. */
int receive_with(int connection, void *data, size_t size, int *descriptors, int most);

#endif
