#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access.h"
#include "accesses.h"
#include "account.h"
#include "frames.h"
#include "idle.h"
#include "listed.h"
#include "program.h"
#include "reason.h"
#include "rights.h"
#include "table.h"
#include "title.h"
#include "worker.h"

enum {
    MOST_CONNECTIONS = 64,
    BACKLOG = 128,
    REQUEST_SECONDS = 5,
    LARGEST_REQUEST = 65536,
    CANNOT_BEGIN = 1,
    /* The descriptors before the connections. */
    SIGNALS = 0,
    CONTROL = 1,
    RUNTIME = 2,
    FIRST_CONNECTION = 3,
};

extern char **environ;

/* Stand-ins for programs that no image can have, because no program of a container gains rights. */
static const char TOOLS[] = "/opt/rookery/tools/bin", SUDO[] = "/opt/rookery/tools/bin/sudo";
static const char DEFAULT_PATH[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/* Login shells of most images set a PATH of their own before they read this file. */
static const char PROFILE_FILE[] = "/etc/profile.d/00-rookery.sh";
static const char PROFILE[] = "[ -z \"${ROOKERY_PATH-}\" ] || PATH=$ROOKERY_PATH\n"
                              "umask 022\n";
/* Names of files below /run/e2b, and of the variables with their content. */
static const char *const MARKS[] = {"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"};
/* Variables that the account of each process decides. */
static const char *const OF_ACCOUNT[] = {"HOME", "USER", "LOGNAME", "PATH"};

static struct sandbox sandbox;
static const char *secret;
static struct pollfd waits[FIRST_CONNECTION + MOST_CONNECTIONS];
static struct idle_peer peers[FIRST_CONNECTION + MOST_CONNECTIONS];
/* True for a connection to the runtime; false for one that asks for an access. */
static bool is_runtime[FIRST_CONNECTION + MOST_CONNECTIONS];
static int waits_count = FIRST_CONNECTION;

_Noreturn static void fail_to_begin(const char *what)
{
    fprintf(stderr, "the sandbox cannot begin: %s: %s\n", what, reason_of(errno));
    exit(CANNOT_BEGIN);
}

/* The environment */

static struct json text_item(const char *text)
{
    return (struct json){.kind = JSON_STRING, .text = (char *)text, .size = strlen(text)};
}

static void add_variable(struct json *env, const char *name, const char *value)
{
    env->items[env->count++] = text_item(name);
    env->items[env->count++] = text_item(value);
}

static bool is_of_account(const char *name)
{
    for (size_t index = 0; index < sizeof OF_ACCOUNT / sizeof *OF_ACCOUNT; index++) {
        if (strcmp(name, OF_ACCOUNT[index]) == 0)
            return true;
    }
    return false;
}

/* Returns the variables of this process as names and values, for the default account. */
static const struct json *variables_of(const struct account *account)
{
    static struct json env = {.kind = JSON_OBJECT};
    struct buffer path = {0};
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    env.items = allocate(2 * (count + sizeof OF_ACCOUNT / sizeof *OF_ACCOUNT) * sizeof *env.items);
    for (size_t index = 0; index < count; index++) {
        char *name = copy_text(environ[index], strlen(environ[index])), *value = strchr(name, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        if (!is_of_account(name))
            add_variable(&env, name, value);
    }
    const char *own_path = getenv("PATH");
    buffer_format(&path, "%s:%s", TOOLS, own_path != NULL ? own_path : DEFAULT_PATH);
    add_variable(&env, "PATH", path.data);
    add_variable(&env, "HOME", account->home);
    add_variable(&env, "USER", account->name);
    add_variable(&env, "LOGNAME", account->name);
    return &env;
}

/* Furnishing */

/* Makes a directory unless it exists. */
static bool make_directory(const char *path, mode_t mode)
{
    return mkdir(path, mode) == 0 ? chmod(path, mode) == 0 : errno == EEXIST;
}

/* Replaces a file. A link that an image has there is not followed. */
static bool write_file(const char *path, const char *text)
{
    unlink(path);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    bool is_written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return is_written;
}

/* The first directory of the usual PATH has the stand-in too, for shells with a PATH of their own. */
static void link_sudo(void)
{
    static const char place[] = "/usr/local/bin/sudo";
    struct stat about;
    if (lstat(place, &about) < 0 && errno == ENOENT)
        (void)!symlink(SUDO, place);
}

static void furnish_container(void)
{
    if (!furnish_accounts())
        fail_to_begin("its accounts cannot be made");
    if (!make_directory("/tmp", 01777) || !make_directory("/run/e2b", 0755))
        fail_to_begin("its directories cannot be made");
    for (size_t index = 0; index < sizeof MARKS / sizeof *MARKS; index++) {
        char path[64];
        const char *value = getenv(MARKS[index]);
        snprintf(path, sizeof path, "/run/e2b/.%s", MARKS[index]);
        if (value != NULL && !write_file(path, value))
            fail_to_begin("its files cannot be made");
    }
    /* Without these a login shell has the PATH of its image only. */
    if (make_directory("/etc/profile.d", 0755))
        (void)!write_file(PROFILE_FILE, PROFILE);
    link_sudo();
}

/* Connections */

/* The socket appears at `path` when it accepts connections. */
static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s.new", path) >= (int)sizeof address.sun_path)
        errno = ENAMETOOLONG;
    /* The service may run as another user. `is_service` refuses processes inside. */
    else if (listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && chmod(address.sun_path, 0666) == 0 &&
             listen(listener, BACKLOG) == 0 && rename(address.sun_path, path) == 0)
        return listener;
    fail_to_begin(path);
}

/* Only a process outside has no pid here. */
static bool is_service(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == 0;
}

static void accept_at(int listener)
{
    int connection = accept4(waits[listener].fd, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        return;
    if (waits_count == FIRST_CONNECTION + MOST_CONNECTIONS || !is_service(connection)) {
        close(connection);
        return;
    }
    set_timeout(connection, REQUEST_SECONDS);
    waits[waits_count] = (struct pollfd){connection, POLLIN, 0};
    peers[waits_count] = (struct idle_peer){.connection = connection};
    is_runtime[waits_count++] = listener == RUNTIME;
}

static void close_connection(int index)
{
    close(waits[index].fd);
    waits[index] = waits[--waits_count];
    peers[index] = peers[waits_count];
    is_runtime[index] = is_runtime[waits_count];
}

static void reap(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0 || (pid < 0 && errno == EINTR);) {
        note_end_of_table(pid);
        note_end_of_access(pid);
    }
}

/* Serves the one request of a connection in a child. */
static void serve_request(int connection)
{
    static struct buffer held;
    struct json request = {0};
    /* Reaps first, so that ended accesses free their slots. */
    reap();
    if (read_message(connection, LARGEST_REQUEST, &held, &request)) {
        const char *operation = json_text(&request, "op"), *way = json_text(&request, "way");
        if (strcmp(operation, "exec") == 0) {
            pid_t child = fork();
            if (child == 0)
                serve_command(connection, &sandbox);
            if (child < 0)
                refuse(connection, "unavailable", "no process can be started inside: %s", reason_of(errno));
        } else if (strcmp(operation, "access") == 0 && strcmp(way, PROCESSES_NAME) == 0) {
            pass_to_table(connection, &sandbox);
        } else if (strcmp(operation, "access") == 0) {
            start_access(connection, &sandbox, way);
        }
    }
    json_free(&request);
}

/* Ends the container with the first request to end: as the first process it takes all others with it. */
static void read_signals(void)
{
    struct signalfd_siginfo about;
    while (read(waits[SIGNALS].fd, &about, sizeof about) == sizeof about) {
        if (about.ssi_signo == SIGTERM)
            _exit(0);
    }
    reap();
}

static int watch_signals(void)
{
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    return signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Reads the orders, and prepares everything that they ask for. */
static void read_orders(const char *file)
{
    static struct json orders;
    struct account account;
    int descriptor = open(file, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || !read_object(&orders, descriptor))
        fail_to_begin("its orders cannot be read");
    unlink(file);
    secret = json_text(&orders, "secret");
    sandbox = (struct sandbox){
        .listed_default = json_text(&orders, "user"),
        .accounts_namespace = -1,
        .most_open_files = json_number(&orders, "maxOpenFiles"),
        .has_pid = true,
        .has_memory_group = true,
        .has_pids_group = true,
    };
    furnish_container();
    if (!find_account(&sandbox, "", &account))
        fail_to_begin("its default account does not exist");
    sandbox.uid = account.uid;
    sandbox.gid = account.gid;
    sandbox.env = variables_of(&account);
    sandbox.working_dir = account.home;
    waits[SIGNALS] = (struct pollfd){watch_signals(), POLLIN, 0};
    waits[CONTROL] = (struct pollfd){listen_at(json_text(&orders, "control")), POLLIN, 0};
    /* The last one: the service waits for it. */
    waits[RUNTIME] = (struct pollfd){listen_at(json_text(&orders, "socket")), POLLIN, 0};
}

_Noreturn void run_container(const char *orders)
{
    umask(022);
    read_orders(orders);
    show_title("rookery: sandbox");
    for (;;) {
        poll(waits, (nfds_t)waits_count, -1);
        if (waits[SIGNALS].revents)
            read_signals();
        /* In reverse order: closing a connection moves the last one into its place. */
        for (int index = waits_count - 1; index >= FIRST_CONNECTION; index--) {
            if (!waits[index].revents)
                continue;
            if (!is_runtime[index])
                serve_request(waits[index].fd);
            if (!is_runtime[index] || !serve_idle(&peers[index], secret))
                close_connection(index);
        }
        if (waits[CONTROL].revents)
            accept_at(CONTROL);
        if (waits[RUNTIME].revents)
            accept_at(RUNTIME);
    }
}
