#include "root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "restrict.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const DIRECTORIES[] = {"dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "usr", "var", "var/lib", "var/log"};
static const char *const OPEN_DIRECTORIES[] = {"dev/shm", "tmp", "var/tmp", "run/lock"};
/* The directories of the host's programs and libraries, and the kernel's files. */
static const char *const SYSTEM[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
static const char *const DEVICES[] = {"null", "zero", "full", "random", "urandom", "tty"};
static const char *const DEVICE_LINKS[][2] = {
    {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}};
/* Paths that container runtimes hide or protect: the parts of /proc that describe the machine. */
static const char *const PROC_READ_ONLY[] = {"bus", "fs", "irq", "mtrr", "sys", "sysrq-trigger"};
/*
 * Hides everything else that is neither a process nor a link: a newer kernel may have more files about the
 * machine.
 */
static const char *const PROC_SHOWN[] = {
    "bus",       "cgroups", "consoles", "cpuinfo",  "crypto",  "devices", "diskstats",     "dma",     "driver", "execdomains", "fb",
    "filesystems", "fs",    "irq",      "loadavg",  "locks",   "mdstat",  "meminfo",       "misc",    "mtrr",   "partitions",  "pressure",
    "stat",      "swaps",   "sys",      "sysrq-trigger", "sysvipc", "tty", "uptime",       "version", "version_signature",
};
/* The most terminals of one sandbox. The kernel limits those of the whole machine. */
static const char TERMINALS[] = "newinstance,ptmxmode=0666,mode=620,max=256";
enum { DEVICE_NAME = 32 };

/* The root that is built. `path` is the latest path, which a failure names. */
static const char *root;
static char path[PATH_MAX];

/* Writes the path of `name` below the root, which is reachable at `in`. */
static const char *at(const char *in, const char *name)
{
    snprintf(path, sizeof path, "%s/%s%s", root, in, name);
    return path;
}

static bool make(const char *in, const char *name)
{
    return mkdir(at(in, name), 0755) == 0 || errno == EEXIST;
}

/* Binds `source` and all mounts below it read-only, at the same place inside. */
static bool show(const char *source, const char *target)
{
    return mount(source, at("", target), NULL, MS_BIND | MS_REC, NULL) == 0 && restrict_mount(path, true);
}

static bool make_directories(void)
{
    for (size_t index = 0; index < COUNT(DIRECTORIES); index++) {
        if (!make("", DIRECTORIES[index]))
            return false;
    }
    for (size_t index = 0; index < COUNT(OPEN_DIRECTORIES); index++) {
        if (!make("", OPEN_DIRECTORIES[index]) || chmod(path, 01777) < 0)
            return false;
    }
    return symlink("/run", at("var/", "run")) == 0;
}

static bool show_system(void)
{
    char origin[DEVICE_NAME], target[PATH_MAX];
    struct stat about;
    if (!show("/usr", "usr"))
        return false;
    for (size_t index = 0; index < COUNT(SYSTEM); index++) {
        snprintf(origin, sizeof origin, "/%s", SYSTEM[index]);
        if (lstat(origin, &about) < 0)
            continue;
        if (S_ISLNK(about.st_mode)) {
            ssize_t size = readlink(origin, target, sizeof target - 1);
            if (size < 0)
                return false;
            target[size] = '\0';
            if (symlink(target, at("", SYSTEM[index])) < 0)
                return false;
        } else if (S_ISDIR(about.st_mode) && (!make("", SYSTEM[index]) || !show(origin, SYSTEM[index]))) {
            return false;
        }
    }
    return true;
}

/* Makes a directory and all directories above it. */
static bool make_all(const char *absolute)
{
    char part[PATH_MAX];
    for (const char *end = strchr(absolute + 1, '/');; end = strchr(end + 1, '/')) {
        size_t size = end == NULL ? strlen(absolute) : (size_t)(end - absolute);
        if (size >= sizeof part) {
            errno = ENAMETOOLONG;
            return false;
        }
        memcpy(part, absolute, size);
        part[size] = '\0';
        if (!make("", part + 1))
            return false;
        if (end == NULL)
            return true;
    }
}

static bool show_more(const struct json *plan)
{
    const struct json *shown = json_get(plan, "shown");
    for (size_t index = 0; index < shown->count; index++) {
        const char *source = shown->items[index].text;
        if (!make_all(source) || !show(source, source + 1))
            return false;
    }
    return true;
}

/* Opens the sandbox's own directory before it is hidden by a mount. */
static int write_resolvers(const char *text)
{
    int names = open(at("etc/", "resolv.conf"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    /* Otherwise the sandbox would query the name servers of the host. */
    if (names >= 0 && write(names, text, strlen(text)) != (ssize_t)strlen(text)) {
        close(names);
        return -1;
    }
    return names;
}

static bool build_etc(const struct json *plan)
{
    const struct json *directories = json_get(plan, "etcDirectories"), *resolvers = json_get(plan, "resolvers");
    char source[PATH_MAX];
    struct stat about;
    bool has_own = resolvers->kind == JSON_STRING;
    int names = has_own ? write_resolvers(resolvers->text) : -1;
    if (has_own && names < 0)
        return false;
    if (mount(json_text(plan, "etc"), at("", "etc"), NULL, MS_BIND, NULL) < 0)
        return false;
    if (names >= 0) {
        snprintf(source, sizeof source, "/proc/self/fd/%d", names);
        bool is_done = stat(at("etc/", "resolv.conf"), &about) < 0 || mount(source, path, NULL, MS_BIND, NULL) == 0;
        close(names);
        if (!is_done)
            return false;
    }
    for (size_t index = 0; index < directories->count; index++) {
        snprintf(source, sizeof source, "/etc/%s", directories->items[index].text);
        if (mount(source, at("etc/", directories->items[index].text), NULL, MS_BIND | MS_REC, NULL) < 0)
            return false;
    }
    return restrict_mount(at("", "etc"), true);
}

static bool build_devices(void)
{
    char source[DEVICE_NAME];
    for (size_t index = 0; index < COUNT(DEVICES); index++) {
        int file = open(at("dev/", DEVICES[index]), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        close(file);
        snprintf(source, sizeof source, "/dev/%s", DEVICES[index]);
        /*
         * Devices work on a read-only mount. Otherwise root inside could change the mode of the host's
         * device.
         */
        if (file < 0 || mount(source, path, NULL, MS_BIND, NULL) < 0 ||
            mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID, NULL) < 0)
            return false;
    }
    for (size_t index = 0; index < COUNT(DEVICE_LINKS); index++) {
        if (symlink(DEVICE_LINKS[index][1], at("dev/", DEVICE_LINKS[index][0])) < 0)
            return false;
    }
    if (!make("dev/", "pts"))
        return false;
    /* Mounts private terminals. If the machine forbids it, there are none. */
    if (mount("rookery", path, "devpts", MS_NOSUID | MS_NOEXEC, TERMINALS) < 0)
        return rmdir(path) == 0;
    return symlink("pts/ptmx", at("dev/", "ptmx")) == 0;
}

static bool is_shown(const char *name)
{
    for (size_t index = 0; index < COUNT(PROC_SHOWN); index++) {
        if (strcmp(PROC_SHOWN[index], name) == 0)
            return true;
    }
    return false;
}

/* `null`: a device that hides files. */
static bool hide_rest_of_proc(const char *null)
{
    DIR *all = opendir(at("", "proc"));
    bool is_done = all != NULL;
    errno = 0;
    for (struct dirent *entry; is_done && (entry = readdir(all)) != NULL; errno = 0) {
        bool is_process = entry->d_name[0] == '.' || (entry->d_name[0] >= '0' && entry->d_name[0] <= '9');
        if (is_process || entry->d_type == DT_LNK || is_shown(entry->d_name))
            continue;
        at("proc/", entry->d_name);
        if (entry->d_type == DT_DIR)
            is_done = mount("rookery", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=0") == 0;
        else
            is_done = mount(null, path, NULL, MS_BIND, NULL) == 0;
    }
    int error = errno;
    if (all != NULL)
        closedir(all);
    errno = error;
    return is_done && error == 0;
}

static bool build_proc(void)
{
    const unsigned long kept = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    char null[PATH_MAX];
    struct stat about;
    snprintf(null, sizeof null, "%s", at("dev/", "null"));
    if (mount("proc", at("", "proc"), "proc", kept, NULL) < 0)
        return false;
    for (size_t index = 0; index < COUNT(PROC_READ_ONLY); index++) {
        if (lstat(at("proc/", PROC_READ_ONLY[index]), &about) == 0 &&
            (mount(path, path, NULL, MS_BIND, NULL) < 0 || mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | kept, NULL) < 0))
            return false;
    }
    return hide_rest_of_proc(null);
}

static bool hide(const struct json *plan)
{
    const struct json *hidden = json_get(plan, "hidden");
    struct stat about;
    for (size_t index = 0; index < hidden->count; index++) {
        if (stat(at("", hidden->items[index].text + 1), &about) == 0 && S_ISDIR(about.st_mode) &&
            mount("rookery", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=0,mode=0") < 0)
            return false;
    }
    return true;
}

bool build_root(const struct json *plan, const char *where, bool own_proc, const char **what)
{
    root = where;
    *what = path;
    umask(022);
    snprintf(path, sizeof path, "%s", root);
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 || mount("rookery", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") < 0 ||
        !make_directories() || !show_system() || !show_more(plan) || !build_etc(plan) || !build_devices())
        return false;
    return (!own_proc || build_proc()) && hide(plan);
}

bool enter_root(const char *root)
{
    return chdir(root) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/") == 0;
}
