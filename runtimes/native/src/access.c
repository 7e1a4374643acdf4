#include "access.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "frames.h"
#include "kernel.h"
#include "program.h"
#include "reason.h"
#include "rights.h"

enum { REQUEST_SECONDS = 10 };

static const struct {
    const char *name;
    int most;
    const char *words;
} KINDS[ACCESS_KINDS] = {
    /* The limit of commands is also in `src/sandbox/access.ts`. */
    [EXEC] = {"exec", 32, "commands"},
    [DIAL] = {"dial", 256, "connections to ports"},
    [FILES] = {"files", 64, "files and directories"},
    [ACCOUNT_FILES] = {"account", 64, "files and directories"},
    [WATCHES] = {"watch", 64, "watched directories"},
};

enum access_kind access_kind_of(const char *name)
{
    int kind = 0;
    while (kind < ACCESS_KINDS && strcmp(KINDS[kind].name, name) != 0)
        kind++;
    return (enum access_kind)kind;
}

int most_accesses(enum access_kind kind)
{
    return KINDS[kind].most;
}

const char *plural_of(enum access_kind kind)
{
    return KINDS[kind].words;
}

/*
 * Memory may be exhausted by files in /tmp. The file is closed to the user, because opening it would let a
 * fast process inside read this memory. If the file is missing, or belongs to an outer user namespace, the
 * kernel chooses.
 */
void prefer_as_oom_victim(void)
{
    write_to("/proc/self/oom_score_adj", "1000");
}

/* Refuses the access. Otherwise the caller would take the closed connection for the end of the sandbox. */
_Noreturn static void refuse_access(int connection, const char *what, int number)
{
    refuse(connection, "unavailable", "the sandbox cannot be entered: %s: %s", what, reason_of(number));
    _exit(1);
}

/*
 * Becomes root of the sandbox if the request names an account, otherwise the default account. Returns for
 * whom the request works. Where root is not an account, the sandbox's user keeps its own rights.
 */
static struct owner become_owner(int connection, const struct sandbox *sandbox, const struct json *request)
{
    const struct json *asked = json_get(request, "user");
    struct account account, root;
    bool is_done;
    if (asked->kind != JSON_STRING) {
        is_done = find_account(sandbox, "", &account) && become_account(sandbox, &account);
        account.home = NULL;
    } else {
        if (json_has_nul(asked) || !find_account(sandbox, asked->text, &account)) {
            refuse(connection, "unauthenticated", "there is no user %s in the sandbox", asked->text);
            _exit(0);
        }
        is_done = become_account(sandbox, find_account(sandbox, "root", &root) ? &root : &account);
    }
    if (!is_done)
        refuse_access(connection, "changing to its user failed", errno);
    return (struct owner){account.uid, account.gid, account.home};
}

static void read_request(int connection, struct json *request)
{
    static struct buffer held;
    set_timeout(connection, REQUEST_SECONDS);
    if (read_message(connection, LARGEST_FRAME, &held, request))
        return;
    refuse(connection, "internal", "the request to the sandbox must be a JSON object");
    _exit(1);
}

/* The request selects the rights, so it is read first. */
_Noreturn static void serve_owner(int connection, const struct sandbox *sandbox, enum access_kind kind)
{
    struct json request;
    read_request(connection, &request);
    struct owner owner = become_owner(connection, sandbox, &request);
    if (!keep_only(connection, -1))
        refuse_access(connection, "its descriptors cannot be opened", errno);
    forbid_inspection();
    enter_directory(sandbox->working_dir);
    if (kind == WATCHES)
        serve_watch(connection, &request, &owner);
    serve_account_files(connection, &request, &owner);
}

_Noreturn void serve_access(int connection, const struct sandbox *sandbox, enum access_kind kind)
{
    struct json request;
    struct account account;
    bool has_owner = kind == ACCOUNT_FILES || kind == WATCHES;
    if (!has_owner && !keep_only(connection, sandbox->accounts_namespace))
        refuse_access(connection, "its descriptors cannot be opened", errno);
    reset_signals();
    /* A write to a closed connection then fails with an error, so that the operation can be undone. */
    signal(SIGPIPE, SIG_IGN);
    setsid();
    umask(022);
    prefer_as_oom_victim();
    if (has_owner)
        serve_owner(connection, sandbox, kind);
    if (!find_account(sandbox, "", &account) || !become_account(sandbox, &account))
        refuse_access(connection, "changing to its user failed", errno);
    /*
     * The process runs with the rights of the user, but the user must not inspect it, whatever a change of
     * ids allows on this machine.
     */
    forbid_inspection();
    read_request(connection, &request);
    enter_directory(sandbox->working_dir);
    if (kind == EXEC)
        serve_stream(connection, sandbox, &request);
    if (kind == DIAL)
        serve_dial(connection, &request);
    serve_files(connection, &request);
}
