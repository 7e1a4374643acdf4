/* The connections of a process table (`table.c`). */
#ifndef PEERS_H
#define PEERS_H

#include <stdbool.h>
#include <sys/types.h>

#include "buffer.h"
#include "children.h"

enum peer_state {
    /* The request has not arrived yet. */
    REQUESTING,
    LISTENING,
    /* Sends input in frames, and gets an answer to each. */
    FEEDING,
    /* Gets what is unsent, then nothing more. */
    CLOSING,
    /* Has got everything, and closes next. */
    LINGERING,
    GONE,
};

struct peer {
    struct peer *next;
    int connection;
    enum peer_state state;
    long long deadline;
    /* The process of a listener or of input. */
    struct child *child;
    /* A listener: the start has been reported. */
    bool is_answered;
    bool is_for_terminal;
    struct buffer received, unsent;
    /* The part of the current frame of input that has been written. */
    size_t written;
    /* Pending inputs are written in this order; 0: none is pending. */
    unsigned long turn;
};

extern struct peer *peers;

void answer(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Refuses with a code of `src/core/error.ts` and a sentence, and closes the connection. */
void refuse_peer(struct peer *peer, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Answers without facts, and closes the connection. */
void accept_request(struct peer *peer);
/*
 * Reads one chunk of an output, and gives it to all listeners; without a listener the chunk is dropped.
 * Returns its size, or -1 if there is none.
 */
ssize_t copy_output(struct child *child, int index);
/* Reads the rest of an ended process as far as its listeners have space, and notes its end. */
void drain_child(struct child *child);
/* True if the process of a peer accepts its input now or later. */
bool can_take_input(const struct peer *peer);
/* Notes a complete frame of input. Returns false if the peer sent an invalid one. */
bool queue_input(struct peer *peer);
/* Writes pending input as far as the process reads it. */
void write_input(struct child *child);
/* Notes for each process whether a listener has no space, and whether input is pending. */
void note_demands(void);
/* Reports changes to peers, sends what can be sent, and frees the closed ones. */
void update_peers(void);
bool is_in_use(const struct child *child);

#endif
