/*
 * Reads JSON in place, and writes it. A lone surrogate of a text is stored as the three bytes that UTF-8
 * would use for it.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    double number;
    /* The text of a string, followed by a NUL; the source text of a number, without one. */
    char *text;
    size_t size;
    /* The items of an array; names and values of an object in alternation. */
    struct json *items;
    size_t count;
};

/*
 * Parses `text`, which it overwrites and refers to. Returns false unless it is exactly one JSON value. `text`
 * must have one byte more than `size`.
 */
bool json_read(struct json *value, char *text, size_t size);
/* Frees the memory of `json_read`, also after a failure. The caller owns the text. */
void json_free(struct json *value);
/* Returns the value of a name, or a null value. */
const struct json *json_get(const struct json *object, const char *name);
/* Returns the text of a name, or "". */
const char *json_text(const struct json *object, const char *name);
double json_number(const struct json *object, const char *name);
bool json_is_true(const struct json *object, const char *name);
/*
 * Returns the bytes of a text, where the lone surrogates U+DC80 to U+DCFF are single bytes. NULL if the text
 * has other lone surrogates.
 */
char *json_bytes(const struct json *text);
/*
 * Writes the same bytes to `bytes` without allocating. False if the text has other lone surrogates, or does
 * not fit. The libc maps and unmaps memory for each text of its size, so long lists use this.
 */
bool json_read_bytes(const struct json *text, char *bytes, size_t size);
/* True if the text contains a NUL. */
bool json_has_nul(const struct json *text);
/* Writes bytes as a text in the form that `json_bytes` reads. */
void json_write_bytes(struct buffer *target, const char *bytes);
/* Writes a value without loss, numbers to the last digit. */
void json_write(struct buffer *target, const struct json *value);
/* Returns the size of the UTF-8 character at `bytes`, or 0 if there is none. */
size_t utf8_size(const unsigned char *bytes);

#endif
