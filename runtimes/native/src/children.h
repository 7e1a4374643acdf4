/* The processes that a process table has started (`table.c`). */
#ifndef CHILDREN_H
#define CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

#include "buffer.h"
#include "json.h"
#include "sandbox.h"

enum child_state {
    /* The program has not been executed yet. */
    STARTING,
    RUNNING,
    /* The program could not be executed. */
    FAILED,
    /* The process has ended, and its output is still read. */
    DRAINING,
    /* The end has been reported. Descendants may keep the outputs open. */
    ENDED,
};

struct child_output {
    /* -1 when closed. */
    int descriptor;
    /* While `DRAINING`: whether there may be more, and the most that is still read. */
    bool is_left;
    long most_left;
};

struct child {
    struct child *next;
    enum child_state state;
    pid_t pid;
    int status;
    bool has_terminal, has_input, is_hidden, is_timed_out, is_reaped;
    /* Whether a listener has no space for output, and whether input is pending. */
    bool is_blocked, is_fed;
    /* A socket until the program is executed; afterwards -1. */
    int report;
    /* -1 when closed; with a terminal a second descriptor of it. `input_ends`: closes when nothing waits. */
    int input;
    bool input_ends;
    struct child_output outputs[2];
    /* Monotonic times. */
    long long deadline, ended_at;
    char *tag;
    /* The facts of a list as members of a JSON object, without braces. */
    struct buffer facts;
    /* Why the start failed. */
    const char *failure_code;
    struct buffer failure;
};

/* In order of their start. */
extern struct child *children;

/* The most bytes that are read from an output at once. */
enum { LARGEST_OUTPUT = 32768 };

/*
 * Forks a process that executes the requested program. Returns NULL, with a code and a sentence, if that is
 * impossible. Later failures arrive through `read_report`.
 */
struct child *start_child(const struct sandbox *sandbox, const struct json *request, const char **code, struct buffer *sentence);
/* Reads what the process reports before it executes the program. Changes its state. */
void read_report(struct child *child);
/* Reads the statuses of ended processes. */
void reap_children(void);
/* Kills processes whose time is over. */
void end_late_children(void);
/* True if the process is alive and its program has begun or is about to. */
bool is_alive(const struct child *child);
/* Returns the process of a request (`pid` or `tag`), alive or ended less than 30 s ago; NULL if none. */
struct child *find_child(const struct json *request);
/* Returns the count of bytes read into `data`; -1 if there is none now. Closes the output at its end. */
ssize_t read_child(struct child_output *output, char data[LARGEST_OUTPUT]);
/* True if listeners that read slowly have delayed the report of an end for too long. */
bool is_late(const struct child *child);
/* Notes that `read_child` has returned `count` from an output of an ended process. */
void note_rest(struct child *child, struct child_output *output, ssize_t count);
/* Sets the size of a terminal: `columns` and `rows`. */
void resize_terminal(int terminal, const struct json *size);
void close_input_of(struct child *child);
/* Frees the processes that nothing can refer to any more. */
void forget_children(bool (*is_in_use)(const struct child *));
/* Returns the next moment at which a process needs attention, or NEVER. */
long long next_moment(void);
/* Returns the count of hidden, or of other processes whose end has not been reported. */
size_t count_children(bool is_hidden);

#endif
