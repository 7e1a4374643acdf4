#include "json.h"

#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64, FIRST_BYTE_SURROGATE = 0xDC80, LAST_BYTE_SURROGATE = 0xDCFF };

struct reader {
    char *at;
    char *end;
    int depth;
};

static bool read_value(struct reader *reader, struct json *value);

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) != NULL && *reader->at != '\0')
        reader->at++;
}

static bool skip(struct reader *reader, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, word, size) != 0)
        return false;
    reader->at += size;
    return true;
}

static bool read_unit(struct reader *reader, unsigned *unit)
{
    *unit = 0;
    if (reader->end - reader->at < 4)
        return false;
    for (int index = 0; index < 4; index++) {
        char digit = *reader->at++;
        unsigned value;
        if (digit >= '0' && digit <= '9')
            value = (unsigned)(digit - '0');
        else if ((digit | 32) >= 'a' && (digit | 32) <= 'f')
            value = (unsigned)((digit | 32) - 'a' + 10);
        else
            return false;
        *unit = *unit * 16 + value;
    }
    return true;
}

static char *put_character(char *target, unsigned code)
{
    if (code < 0x80) {
        *target++ = (char)code;
    } else if (code < 0x800) {
        *target++ = (char)(0xC0 | code >> 6);
        *target++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *target++ = (char)(0xE0 | code >> 12);
        *target++ = (char)(0x80 | (code >> 6 & 0x3F));
        *target++ = (char)(0x80 | (code & 0x3F));
    } else {
        *target++ = (char)(0xF0 | code >> 18);
        *target++ = (char)(0x80 | (code >> 12 & 0x3F));
        *target++ = (char)(0x80 | (code >> 6 & 0x3F));
        *target++ = (char)(0x80 | (code & 0x3F));
    }
    return target;
}

/* Decodes the digits after `\u`. A pair of surrogates is one character. */
static bool read_escaped_unit(struct reader *reader, char **target)
{
    unsigned code, low;
    if (!read_unit(reader, &code))
        return false;
    if (code >= 0xD800 && code < 0xDC00 && reader->end - reader->at >= 6 && reader->at[0] == '\\' && reader->at[1] == 'u') {
        struct reader ahead = *reader;
        ahead.at += 2;
        if (!read_unit(&ahead, &low))
            return false;
        if (low >= 0xDC00 && low < 0xE000) {
            *reader = ahead;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    *target = put_character(*target, code);
    return true;
}

/* Decodes in place: the result is never longer than its source. */
static bool read_string(struct reader *reader, struct json *value)
{
    static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    if (!skip(reader, "\""))
        return false;
    char *target = reader->at;
    value->kind = JSON_STRING;
    value->text = target;
    while (reader->at < reader->end) {
        char next = *reader->at++;
        if (next == '"') {
            value->size = (size_t)(target - value->text);
            *target = '\0';
            return true;
        }
        if (next != '\\') {
            *target++ = next;
            continue;
        }
        if (reader->at == reader->end)
            return false;
        next = *reader->at++;
        if (next == 'u') {
            if (!read_escaped_unit(reader, &target))
                return false;
            continue;
        }
        size_t index = 0;
        while (escapes[index] != '\0' && escapes[index] != next)
            index += 2;
        if (escapes[index] == '\0')
            return false;
        *target++ = escapes[index + 1];
    }
    return false;
}

static struct json *add_item(struct json *value)
{
    /* Grows at each power of two. */
    if ((value->count & (value->count - 1)) == 0)
        value->items = reallocate(value->items, (value->count ? value->count * 2 : 1) * sizeof *value->items);
    struct json *item = &value->items[value->count++];
    memset(item, 0, sizeof *item);
    return item;
}

static bool read_items(struct reader *reader, struct json *value, bool is_object)
{
    const char *end = is_object ? "}" : "]";
    reader->at++;
    value->kind = is_object ? JSON_OBJECT : JSON_ARRAY;
    skip_space(reader);
    if (skip(reader, end))
        return true;
    do {
        if (is_object) {
            skip_space(reader);
            if (!read_string(reader, add_item(value)))
                return false;
            skip_space(reader);
            if (!skip(reader, ":"))
                return false;
        }
        /* Parses into a local value, because the items move when they grow. */
        struct json item = {0};
        bool is_good = read_value(reader, &item);
        *add_item(value) = item;
        if (!is_good)
            return false;
        skip_space(reader);
    } while (skip(reader, ","));
    return skip(reader, end);
}

static bool read_value(struct reader *reader, struct json *value)
{
    skip_space(reader);
    if (reader->at == reader->end || reader->depth == DEEPEST)
        return false;
    bool is_good;
    char first = *reader->at;
    reader->depth++;
    if (first == '{' || first == '[') {
        is_good = read_items(reader, value, first == '{');
    } else if (first == '"') {
        is_good = read_string(reader, value);
    } else if (skip(reader, "null")) {
        is_good = true;
    } else if (skip(reader, "true")) {
        value->kind = JSON_TRUE;
        is_good = true;
    } else if (skip(reader, "false")) {
        value->kind = JSON_FALSE;
        is_good = true;
    } else {
        char *end;
        value->kind = JSON_NUMBER;
        value->number = strtod(reader->at, &end);
        is_good = end != reader->at && end <= reader->end;
        value->text = reader->at;
        value->size = is_good ? (size_t)(end - reader->at) : 0;
        reader->at = end;
    }
    reader->depth--;
    return is_good;
}

bool json_read(struct json *value, char *text, size_t size)
{
    struct reader reader = {text, text + size, 0};
    memset(value, 0, sizeof *value);
    text[size] = '\0';
    if (!read_value(&reader, value))
        return false;
    skip_space(&reader);
    return reader.at == reader.end;
}

void json_free(struct json *value)
{
    for (size_t index = 0; index < value->count; index++)
        json_free(&value->items[index]);
    free(value->items);
    memset(value, 0, sizeof *value);
}

const struct json *json_get(const struct json *object, const char *name)
{
    static const struct json nothing;
    /* The last of equal names counts. */
    for (size_t index = object->kind == JSON_OBJECT ? object->count : 0; index > 0; index -= 2) {
        if (strcmp(object->items[index - 2].text, name) == 0)
            return &object->items[index - 1];
    }
    return &nothing;
}

const char *json_text(const struct json *object, const char *name)
{
    const struct json *value = json_get(object, name);
    return value->kind == JSON_STRING ? value->text : "";
}

double json_number(const struct json *object, const char *name)
{
    return json_get(object, name)->number;
}

bool json_is_true(const struct json *object, const char *name)
{
    return json_get(object, name)->kind == JSON_TRUE;
}

bool json_has_nul(const struct json *text)
{
    return memchr(text->text, '\0', text->size) != NULL;
}

bool json_read_bytes(const struct json *text, char *bytes, size_t size)
{
    char *target = bytes;
    if (text->size >= size)
        return false;
    for (size_t index = 0; index < text->size;) {
        const unsigned char *at = (const unsigned char *)text->text + index;
        bool is_surrogate = at[0] == 0xED && text->size - index >= 3 && at[1] >= 0xA0;
        if (!is_surrogate) {
            *target++ = text->text[index++];
            continue;
        }
        unsigned code = 0xD000u | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
        if (code < FIRST_BYTE_SURROGATE || code > LAST_BYTE_SURROGATE)
            return false;
        *target++ = (char)(code - 0xDC00);
        index += 3;
    }
    *target = '\0';
    return true;
}

char *json_bytes(const struct json *text)
{
    char *bytes = allocate(text->size + 1);
    if (json_read_bytes(text, bytes, text->size + 1))
        return bytes;
    free(bytes);
    return NULL;
}

size_t utf8_size(const unsigned char *bytes)
{
    unsigned char first = bytes[0];
    if (first < 0x80)
        return 1;
    size_t size = first >= 0xC2 && first < 0xE0 ? 2 : (first & 0xF0) == 0xE0 ? 3 : first >= 0xF0 && first < 0xF5 ? 4 : 0;
    for (size_t index = 1; index < size; index++) {
        if ((bytes[index] & 0xC0) != 0x80)
            return 0;
    }
    /* Rejects overlong forms, surrogates, and numbers above the last character. */
    bool is_wrong = (first == 0xE0 && bytes[1] < 0xA0) || (first == 0xED && bytes[1] >= 0xA0) ||
                    (first == 0xF0 && bytes[1] < 0x90) || (first == 0xF4 && bytes[1] >= 0x90);
    return is_wrong ? 0 : size;
}

void json_write_bytes(struct buffer *target, const char *bytes)
{
    const unsigned char *at = (const unsigned char *)bytes;
    buffer_add(target, "\"", 1);
    while (*at != '\0') {
        size_t size = utf8_size(at);
        if (size == 0)
            buffer_format(target, "\\u%04x", 0xDC00u + *at);
        else if (*at < 0x20 || *at == 0x7F)
            buffer_format(target, "\\u%04x", *at);
        else if (*at == '"' || *at == '\\')
            buffer_format(target, "\\%c", *at);
        else
            buffer_add(target, at, size);
        at += size ? size : 1;
    }
    buffer_add(target, "\"", 1);
}

/* Returns the length of a character, with lone surrogates as they are stored. */
static void write_text(struct buffer *target, const struct json *text)
{
    buffer_add(target, "\"", 1);
    for (size_t index = 0; index < text->size; index++) {
        const unsigned char *at = (const unsigned char *)text->text + index;
        if (at[0] == 0xED && text->size - index >= 3 && at[1] >= 0xA0) {
            buffer_format(target, "\\u%04x", 0xD000u | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu));
            index += 2;
        } else if (*at < 0x20 || *at == 0x7F) {
            buffer_format(target, "\\u%04x", *at);
        } else {
            if (*at == '"' || *at == '\\')
                buffer_add(target, "\\", 1);
            buffer_add(target, at, 1);
        }
    }
    buffer_add(target, "\"", 1);
}

void json_write(struct buffer *target, const struct json *value)
{
    bool is_object = value->kind == JSON_OBJECT;
    switch (value->kind) {
    case JSON_NULL:
        buffer_add(target, "null", 4);
        break;
    case JSON_FALSE:
        buffer_add(target, "false", 5);
        break;
    case JSON_TRUE:
        buffer_add(target, "true", 4);
        break;
    case JSON_NUMBER:
        buffer_add(target, value->text, value->size);
        break;
    case JSON_STRING:
        write_text(target, value);
        break;
    default:
        buffer_add(target, is_object ? "{" : "[", 1);
        for (size_t index = 0; index < value->count; index++) {
            if (index > 0)
                buffer_add(target, is_object && index % 2 == 1 ? ":" : ",", 1);
            json_write(target, &value->items[index]);
        }
        buffer_add(target, is_object ? "}" : "]", 1);
    }
}
