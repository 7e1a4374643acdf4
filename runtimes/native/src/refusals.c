#include "refusals.h"

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include "frames.h"
#include "reason.h"

const char *shown(const char *path)
{
    struct buffer text = {0};
    for (const unsigned char *at = (const unsigned char *)path; *at != '\0';) {
        size_t size = utf8_size(at);
        if (size == 0)
            buffer_add(&text, "\xEF\xBF\xBD", 3);
        else
            buffer_add(&text, at, size);
        at += size ? size : 1;
    }
    buffer_add(&text, "", 1);
    return text.data;
}

const char *refusal_of(int number, const char *path, const char *doing, const char **code)
{
    struct buffer sentence = {0};
    const char *where = shown(path), *reason = reason_of(number);
    switch (number) {
    case ENOENT:
    case ENOTDIR:
        *code = "not_found";
        buffer_format(&sentence, "%s does not exist in the sandbox: %s", where, reason);
        return sentence.data;
    case EROFS:
        *code = "permission_denied";
        buffer_format(&sentence, "%s cannot be %s: it is on a read-only file system", where, doing);
        return sentence.data;
    case EACCES:
    case EPERM:
        *code = "permission_denied";
        buffer_format(&sentence, "%s cannot be %s by the user of the sandbox: %s", where, doing, reason);
        return sentence.data;
    case EBUSY:
        *code = "failed_precondition";
        buffer_format(&sentence, "%s cannot be %s: something is mounted there", where, doing);
        return sentence.data;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMLINK:
        *code = "resource_exhausted";
        break;
    case ELOOP:
    case ENAMETOOLONG:
    case EISDIR:
    case EINVAL:
    case ENXIO:
    case ENODEV:
        *code = "invalid_request";
        break;
    default:
        *code = "unavailable";
    }
    buffer_format(&sentence, "%s cannot be %s: %s", where, doing, reason);
    return sentence.data;
}

static int caller;
static struct buffer memory_refusal;

_Noreturn static void refuse_memory(void)
{
    send_all(caller, memory_refusal.data, memory_refusal.size);
    _exit(0);
}

void refuse_when_without_memory(int connection, const char *sentence)
{
    struct buffer message = {0};
    buffer_format(&message, "{\"ok\":false,\"code\":\"resource_exhausted\",\"message\":");
    json_write_bytes(&message, sentence);
    buffer_add(&message, "}", 1);
    add_frame(&memory_refusal, message.data, message.size);
    buffer_free(&message);
    caller = connection;
    on_out_of_memory = refuse_memory;
}

_Noreturn void refuse_error(int connection, int number, const char *path, const char *doing)
{
    const char *code, *sentence = refusal_of(number, path, doing, &code);
    refuse(connection, code, "%s", sentence);
    _exit(0);
}
