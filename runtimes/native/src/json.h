/* JSON: read in place, and written. A lone surrogate of a text stands in memory as the three bytes that UTF-8 would have for it. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    double number;
    /* Of a string, with a NUL behind it; of a number as it was written, without one. */
    char *text;
    size_t size;
    /* Of an array its items; of an object a name and a value in turns. */
    struct json *items;
    size_t count;
};

/* What `text` says, which it is kept in and written over; false when that is not one JSON value. `text` has one byte more than `size`. */
bool json_read(struct json *value, char *text, size_t size);
/* Gives back what `json_read` took, also when it failed. The text is its owner's. */
void json_free(struct json *value);
/* The value of that name; one that is null when there is none. */
const struct json *json_get(const struct json *object, const char *name);
/* The text of that name; "" when there is none. */
const char *json_text(const struct json *object, const char *name);
double json_number(const struct json *object, const char *name);
bool json_is_true(const struct json *object, const char *name);
/* The bytes that a text stands for: the lone surrogates U+DC80 to U+DCFF are bytes that are no UTF-8. NULL where it stands for none. */
char *json_bytes(const struct json *text);
/* Whether there is a NUL in the text. */
bool json_has_nul(const struct json *text);
/* Writes bytes as a text, as `json_bytes` reads it. */
void json_write_bytes(struct buffer *target, const char *bytes);
/* Writes a value that was read: what it says is the same, numbers to the last digit. */
void json_write(struct buffer *target, const struct json *value);
/* How many bytes the UTF-8 character there has; 0 where there is none. */
size_t utf8_size(const unsigned char *bytes);

#endif
