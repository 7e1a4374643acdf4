/*
 * Serves one file request of one connection, in the surroundings and with the rights of this process. Paths
 * are UTF-8. Other bytes are lone surrogates (`\udc80` to `\udcff`), in requests and in answers. A relative
 * path is relative to the directory of this process.
 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directories.h"
#include "entries.h"
#include "frames.h"
#include "moment.h"
#include "refusals.h"
#include "access.h"

enum {
    /* The most time between two parts of an upload. */
    STALLED_SECONDS = 120,
    /* The time in which the caller must read a refusal of its upload. */
    HEARD_SECONDS = 10,
    CHUNK = 1048576,
    SEND_BUFFER = 1048576,
    /* The most that is read of a file whose size is unknown. */
    MOST_UNKNOWN = 16777216,
    UNKNOWN_STEP = 65536,
    TRIES_OF_NAMES = 100,
    /* The kernel follows as many links in one path. */
    MOST_LINKS = 40,
};

/* Reading */

static const char *kind_in_words(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISLNK(mode)  ? "a symbolic link"
                            : "a device";
}

void demand_regular(int connection, mode_t mode, const char *path)
{
    if (S_ISREG(mode))
        return;
    refuse(connection, "invalid_request", "%s is %s, not a file", shown(path), kind_in_words(mode));
    _exit(0);
}

static int open_regular(int connection, const char *path, struct stat *about)
{
    /* Opening a pipe or a device can have effects, so its type is checked first. */
    if (stat(path, about) < 0)
        refuse_error(connection, errno, path, "read");
    demand_regular(connection, about->st_mode, path);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0 || fstat(descriptor, about) < 0)
        refuse_error(connection, errno, path, "read");
    demand_regular(connection, about->st_mode, path);
    return descriptor;
}

/* Reads a file of unknown size, such as those of /proc, which report none. */
static void read_all(int connection, const char *path, int descriptor, struct buffer *content)
{
    ssize_t count;
    while ((count = read(descriptor, buffer_room(content, UNKNOWN_STEP), UNKNOWN_STEP)) > 0) {
        content->size += (size_t)count;
        if (content->size > MOST_UNKNOWN) {
            refuse(connection, "resource_exhausted", "%s has no known size and more than %d bytes", shown(path), MOST_UNKNOWN);
            _exit(0);
        }
    }
    if (count < 0 && errno != EAGAIN)
        refuse_error(connection, errno, path, "read");
}

void read_file(int connection, const char *path, bool reads_unknown)
{
    static struct buffer held;
    struct json wanted;
    struct stat about;
    struct buffer content = {0};
    int descriptor = open_regular(connection, path, &about), size = SEND_BUFFER;
    if (reads_unknown && about.st_size == 0) {
        read_all(connection, path, descriptor, &content);
        about.st_size = (off_t)content.size;
    }
    send_format(connection, "{\"ok\":true,\"sizeBytes\":%lld,\"modifiedAtMs\":%lld,\"mode\":%u}", (long long)about.st_size,
                modified_ms(&about), (unsigned)about.st_mode & PERMISSIONS);
    set_timeout(connection, 0);
    if (!read_message(connection, LARGEST_FRAME, &held, &wanted))
        return;
    setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    off_t offset = (off_t)json_number(&wanted, "start");
    double asked_end = json_number(&wanted, "end");
    off_t end = asked_end < (double)about.st_size ? (off_t)asked_end : about.st_size;
    if (content.size > 0) {
        if (offset >= 0 && offset < end)
            send_all(connection, content.data + offset, (size_t)(end - offset));
        return;
    }
    while (offset < end) {
        off_t left = end - offset;
        /* If the file has become shorter, the caller detects it by the count. */
        if (sendfile(connection, descriptor, &offset, left < CHUNK ? (size_t)left : CHUNK) <= 0)
            return;
    }
}

/* Writing */

/*
 * An unnamed file where the file system supports it, otherwise a temporary one beside its target. Removed
 * unless it replaces the target.
 */
struct new_file {
    struct upload upload;
    const char *name;
    /* The mode of the file that it replaces, or the default mode. */
    mode_t mode;
};

void discard_upload(struct upload *upload)
{
    if (upload->temporary[0] != '\0')
        unlinkat(upload->parent, upload->temporary, 0);
}

/*
 * After the first answer, reads on until the caller has read the refusal: a write to a closed connection
 * would hide it from the caller.
 */
_Noreturn void fail_upload(struct upload *upload, int number)
{
    if (upload->has_answered) {
        const char *code, *sentence = refusal_of(number, upload->path, "written", &code);
        refuse(upload->connection, code, "%s", sentence);
        discard_upload(upload);
        char *chunk = allocate(CHUNK);
        long long deadline = after_ms(HEARD_SECONDS * 1000);
        set_timeout(upload->connection, HEARD_SECONDS);
        while (recv(upload->connection, chunk, CHUNK, 0) > 0 && !has_passed(deadline))
            ;
        _exit(0);
    }
    discard_upload(upload);
    refuse_error(upload->connection, number, upload->path, "written");
}

#define TEMPORARY_HEAD ".rookery-"
#define TEMPORARY_TAIL ".part"
enum { RANDOM_BYTES = 8 };

bool is_temporary(const char *name)
{
    size_t head = strlen(TEMPORARY_HEAD);
    if (strncmp(name, TEMPORARY_HEAD, head) != 0)
        return false;
    const char *random = name + head;
    return strspn(random, "0123456789abcdef") == 2 * RANDOM_BYTES && strcmp(random + 2 * RANDOM_BYTES, TEMPORARY_TAIL) == 0;
}

enum naming { CREATE, LINK };

/* Gives the file an unused name beside its target. Returns false with errno. */
static bool give_unused_name(struct new_file *file, enum naming naming)
{
    for (int tries = 0; tries < TRIES_OF_NAMES; tries++) {
        unsigned char random[RANDOM_BYTES];
        char name[sizeof file->upload.temporary], *at = name + sprintf(name, TEMPORARY_HEAD);
        if (getrandom(random, sizeof random, 0) != sizeof random)
            return false;
        for (size_t index = 0; index < sizeof random; index++)
            at += sprintf(at, "%02x", random[index]);
        strcpy(at, TEMPORARY_TAIL);
        int result;
        if (naming == CREATE) {
            result = openat(file->upload.parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
            file->upload.descriptor = result;
        } else {
            char itself[32];
            snprintf(itself, sizeof itself, "/proc/self/fd/%d", file->upload.descriptor);
            result = linkat(AT_FDCWD, itself, file->upload.parent, name, AT_SYMLINK_FOLLOW);
        }
        if (result >= 0) {
            strcpy(file->upload.temporary, name);
            return true;
        }
        if (errno != EEXIST)
            return false;
    }
    return false;
}

static bool is_full(int number)
{
    return number == ENOSPC || number == EDQUOT || number == EFBIG || number == ENOMEM || number == EMLINK;
}

/*
 * Opens the directory above `path`, relative to the directory that is open now. The rest of the path is the
 * name.
 */
static void enter_parent(struct new_file *file, const char *path)
{
    const char *slash = strrchr(path, '/');
    file->name = slash ? slash + 1 : path;
    if (file->name[0] == '\0' || strcmp(file->name, ".") == 0 || strcmp(file->name, "..") == 0) {
        refuse(file->upload.connection, "invalid_request", "%s names a directory, not a file", shown(file->upload.path));
        _exit(0);
    }
    char *parent = slash ? copy_text(path, (size_t)(slash - path)) : copy_text(".", 1);
    /* A path of slashes only is the root. */
    for (size_t size = strlen(parent); size > 0 && parent[size - 1] == '/'; size--)
        parent[size - 1] = '\0';
    const char *directory = parent[0] != '\0' ? parent : "/";
    int base = file->upload.parent;
    file->upload.parent = openat(base, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file->upload.parent < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        const char *by = path == file->upload.path ? "" : ", where a symbolic link leads,";
        refuse(file->upload.connection, "not_found", "the directory %s%s does not exist in the sandbox", shown(directory), by);
        _exit(0);
    }
    if (file->upload.parent < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
        /* The directory may be searchable and writable but not readable. */
        file->upload.parent = openat(base, directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (file->upload.parent < 0)
        fail_upload(&file->upload, errno);
    if (base != AT_FDCWD)
        close(base);
    free(parent);
}

/*
 * Finds the target of the new file by following symbolic links at `path`. An existing file passes on its
 * mode.
 */
static void find_place(struct new_file *file)
{
    struct stat about;
    enter_parent(file, file->upload.path);
    for (int links = 0;; links++) {
        char target[PATH_MAX];
        if (fstatat(file->upload.parent, file->name, &about, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno != ENOENT)
                fail_upload(&file->upload, errno);
            return;
        }
        if (!S_ISLNK(about.st_mode))
            break;
        if (links == MOST_LINKS)
            fail_upload(&file->upload, ELOOP);
        ssize_t size = readlinkat(file->upload.parent, file->name, target, sizeof target);
        /* The link was replaced in the meantime, so the target is resolved again. */
        if (size < 0 && (errno == EINVAL || errno == ENOENT))
            continue;
        if (size < 0)
            fail_upload(&file->upload, errno);
        enter_parent(file, copy_text(target, (size_t)size));
    }
    demand_regular(file->upload.connection, about.st_mode, file->upload.path);
    file->mode = about.st_mode & GIVEN_PERMISSIONS;
}

static void open_new(struct new_file *file)
{
    struct stat about;
    find_place(file);
    /* linkat() names the file through /proc. */
    if (stat("/proc/self/fd", &about) == 0) {
        file->upload.descriptor = openat(file->upload.parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (file->upload.descriptor >= 0)
            return;
        if (is_full(errno))
            fail_upload(&file->upload, errno);
        /*
         * The file system has no unnamed files, or reports a wrong errno for a read-only one. The next
         * attempt decides.
         */
    }
    if (!give_unused_name(file, CREATE))
        fail_upload(&file->upload, errno);
}

static void write_part(struct upload *upload, const char *part, size_t size)
{
    while (size > 0) {
        ssize_t count = write(upload->descriptor, part, size);
        if (count < 0)
            fail_upload(upload, errno);
        part += count;
        size -= (size_t)count;
    }
}

bool receive_upload(struct upload *upload, unsigned long long *size)
{
    char *chunk = allocate(CHUNK);
    unsigned char head[FRAME_HEAD];
    size_t head_size = 0, missing = 0;
    *size = 0;
    send_format(upload->connection, "{\"ok\":true}");
    upload->has_answered = true;
    set_timeout(upload->connection, STALLED_SECONDS);
    for (;;) {
        ssize_t count = recv(upload->connection, chunk, CHUNK, 0);
        if (count <= 0)
            return false;
        for (const char *part = chunk, *end = chunk + count; part < end;) {
            if (missing == 0) {
                head[head_size++] = (unsigned char)*part++;
                if (head_size < FRAME_HEAD)
                    continue;
                head_size = 0;
                missing = get_u32(head);
                if (missing == 0)
                    return true;
                continue;
            }
            size_t now = (size_t)(end - part) < missing ? (size_t)(end - part) : missing;
            write_part(upload, part, now);
            *size += now;
            missing -= now;
            part += now;
        }
    }
}

static void take_place(struct new_file *file, mode_t mode)
{
    if (fchmod(file->upload.descriptor, mode) < 0 || (file->upload.temporary[0] == '\0' && !give_unused_name(file, LINK)) ||
        renameat(file->upload.parent, file->upload.temporary, file->upload.parent, file->name) < 0)
        fail_upload(&file->upload, errno);
    file->upload.temporary[0] = '\0';
}

/*
 * Answers when the upload can begin. Frames with the content follow, then an empty one. Only then the file
 * replaces its target, and a second answer has its size.
 */
static void write_file(int connection, const char *path, const struct json *request)
{
    const struct json *mode = json_get(request, "mode");
    struct new_file file = {.upload = {.connection = connection, .path = path, .parent = AT_FDCWD, .descriptor = -1}, .mode = 0644};
    unsigned long long size;
    open_new(&file);
    if (receive_upload(&file.upload, &size)) {
        take_place(&file, mode->kind == JSON_NUMBER ? (mode_t)mode->number & GIVEN_PERMISSIONS : file.mode);
        send_format(connection, "{\"ok\":true,\"sizeBytes\":%llu}", size);
    }
    discard_upload(&file.upload);
}

static void prepare_for_no_memory(int connection, const char *path)
{
    struct buffer sentence = {0};
    buffer_format(&sentence, "the memory of the sandbox is not enough for %s", shown(path));
    refuse_when_without_memory(connection, sentence.data);
}

_Noreturn void serve_files(int connection, const struct json *request)
{
    const char *operation = json_text(request, "op");
    char *path = member_path(connection, request, "path", false);
    prepare_for_no_memory(connection, path);
    if (strcmp(operation, "open") == 0)
        read_file(connection, path, false);
    else if (strcmp(operation, "write") == 0)
        write_file(connection, path, request);
    else if (strcmp(operation, "list") == 0)
        list_directory(connection, path, request);
    else if (strcmp(operation, "mkdir") == 0)
        make_directory(connection, path, request);
    _exit(0);
}
