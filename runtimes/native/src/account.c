/*
 * A sandbox with accounts has a user namespace of its own for them, inside that of init. Nothing else on the
 * host has its ids, so its capabilities reach only what belongs to the sandbox. Init stays outside and owns
 * it: each child of init enters it and becomes an account.
 */
#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "groups.h"
#include "kernel.h"
#include "listed.h"
#include "rights.h"

enum {
    USER_ID = 1000,
    /* No distribution assigns these uids. Those of limits precede them (`making.h`). */
    FIRST_ACCOUNT = 0x78000000,
    MOST_SANDBOXES = 1 << 25,
    /* All other ids of all sandboxes. Two sandboxes have no file and no process in common. */
    FIRST_OTHER = 0x7c000000,
    LAST_ID = 65535,
    LARGEST_MAP = 160,
    /* Supplementary groups of an account of an image. */
    MOST_GROUPS = 256,
};

#define RIGHTS_OF_ROOT                                                                                             \
    (CAPABILITY(CAP_CHOWN) | CAPABILITY(CAP_DAC_OVERRIDE) | CAPABILITY(CAP_FOWNER) | CAPABILITY(CAP_KILL) |         \
     CAPABILITY(CAP_SETGID) | CAPABILITY(CAP_SETUID))

static const struct account ACCOUNTS[] = {
    {0, 0, "root", "/root", "/bin/bash"},
    {USER_ID, USER_ID, "user", "/home/user", "/bin/bash"},
};
enum { DEFAULT_ACCOUNT = 1, ACCOUNT_COUNT = sizeof ACCOUNTS / sizeof *ACCOUNTS };

static bool is_alone(const struct sandbox *sandbox)
{
    return sandbox->accounts_namespace < 0;
}

bool find_account(const struct sandbox *sandbox, const char *name, struct account *found)
{
    size_t index = name[0] == '\0' ? DEFAULT_ACCOUNT : 0;
    if (sandbox->listed_default != NULL)
        return find_listed_account(name[0] == '\0' ? sandbox->listed_default : name, found);
    if (!sandbox->has_accounts) {
        const struct json *home = json_get(sandbox->env, "HOME");
        *found = (struct account){.name = sandbox->uid == 0 ? "root" : "user", .shell = "/bin/sh"};
        found->home = home->kind == JSON_STRING ? home->text : "/";
    } else {
        while (name[0] != '\0' && index < ACCOUNT_COUNT && strcmp(ACCOUNTS[index].name, name) != 0)
            index++;
        if (index == ACCOUNT_COUNT)
            return false;
        *found = ACCOUNTS[index];
    }
    if (is_alone(sandbox)) {
        found->uid = sandbox->uid;
        found->gid = sandbox->gid;
    }
    return name[0] == '\0' || strcmp(name, found->name) == 0;
}

struct account_ids account_ids_of(uid_t limits_owner)
{
    unsigned first = FIRST_ACCOUNT + 2 * ((limits_owner - FIRST_OWNER) % MOST_SANDBOXES);
    return (struct account_ids){.root = first, .user = first + 1};
}

/* Drops all other capabilities for the programs that are executed later. */
static bool bound_capabilities(uint64_t kept)
{
    for (unsigned long number = 0; number < 64; number++) {
        /* The kernel knows no number above the first that it refuses. */
        if (!(kept >> number & 1) && prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0)
            return number > 0 && errno == EINVAL;
    }
    return true;
}

/* Refuses setns, which the filter of init allows. That filter refuses the calls of other architectures. */
static bool refuse_setns(void)
{
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_setns},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    return filter_calls(code, sizeof code);
}

/* Becomes an account of an image. No process of a container gains rights when it executes a program. */
static bool become_listed(const struct sandbox *sandbox, const struct account *account)
{
    gid_t groups[MOST_GROUPS];
    size_t count = find_listed_groups(account, groups, MOST_GROUPS);
    return limit_user(sandbox) && syscall(SYS_setgroups, count, groups) == 0 &&
           syscall(SYS_setresgid, account->gid, account->gid, account->gid) == 0 &&
           syscall(SYS_setresuid, account->uid, account->uid, account->uid) == 0 &&
           keep_capabilities(account->uid == 0 ? RIGHTS_OF_ROOT : 0);
}

bool become_account(const struct sandbox *sandbox, const struct account *account)
{
    if (sandbox->listed_default != NULL)
        return become_listed(sandbox, account);
    if (is_alone(sandbox))
        return become_user(sandbox);
    uint64_t kept = account->uid == 0 ? RIGHTS_OF_ROOT : 0;
    gid_t groups[] = {account->gid};
    /* Init has made the namespace and owns it, so it has all rights over it. */
    if (!limit_user(sandbox) || setns(sandbox->accounts_namespace, CLONE_NEWUSER) < 0 || !bound_capabilities(kept) || !refuse_setns())
        return false;
    close(sandbox->accounts_namespace);
    /* Uses system calls: this process has one thread, but libc would synchronize others. */
    if (syscall(SYS_setgroups, 1, groups) < 0 || syscall(SYS_setresgid, account->gid, account->gid, account->gid) < 0 ||
        syscall(SYS_setresuid, account->uid, account->uid, account->uid) < 0 || !keep_capabilities(kept))
        return false;
    return sandbox->has_pid || prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

/* Makes the namespace, passes it on, and keeps it until its ids are written. */
_Noreturn static void offer_namespace(int connection, int proc)
{
    char byte;
    int about = openat(proc, "self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_made = about >= 0 && unshare(CLONE_NEWUSER) == 0;
    int given[] = {is_made ? openat(about, "ns/user", O_RDONLY | O_CLOEXEC) : -1, about};
    int number = given[0] >= 0 ? 0 : errno;
    send_with(connection, &number, sizeof number, given, number == 0 ? 2 : 0);
    (void)!recv(connection, &byte, 1, 0);
    _exit(0);
}

static bool write_ids(int about, struct account_ids ids)
{
    char map[LARGEST_MAP];
    snprintf(map, sizeof map, "0 %u 1\n1 %u %u\n%u %u 1\n%u %u %u\n", ids.root, FIRST_OTHER + 1, USER_ID - 1, USER_ID, ids.user,
             USER_ID + 1, FIRST_OTHER + USER_ID + 1, LAST_ID - USER_ID);
    static const char *const files[] = {"uid_map", "gid_map"};
    for (size_t index = 0; index < 2; index++) {
        int file = openat(about, files[index], O_WRONLY | O_CLOEXEC);
        bool is_written = file >= 0 && write(file, map, strlen(map)) > 0;
        int number = errno;
        close(file);
        errno = number;
        if (!is_written)
            return false;
    }
    return true;
}

int make_accounts_namespace(int proc, struct account_ids ids)
{
    int pair[2], given[2], number;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        close(pair[0]);
        offer_namespace(pair[1], proc);
    }
    close(pair[1]);
    int count = receive_with(pair[0], &number, sizeof number, given, 2);
    if (count == 2 && !write_ids(given[1], ids)) {
        number = errno;
        close(given[0]);
    }
    if (count == 2)
        close(given[1]);
    close(pair[0]);
    waitpid(child, NULL, 0);
    errno = count < 0 ? EPERM : number;
    return count == 2 && number == 0 ? given[0] : -1;
}
