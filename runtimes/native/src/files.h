/* Sends files, and receives uploads, for the parts that serve file requests. */
#ifndef FILES_H
#define FILES_H

#include <stdbool.h>
#include <sys/stat.h>

/* A file that an upload fills. */
struct upload {
    int connection;
    const char *path;
    int descriptor;
    /* The directory of the temporary file, and its name, or empty. */
    int parent;
    char temporary[48];
    bool has_answered;
};

/* Refuses the request unless the mode is that of a regular file. */
void demand_regular(int connection, mode_t mode, const char *path);
/*
 * Answers with the attributes of the file at `path`, waits for the requested range, and sends only its bytes.
 * `reads_unknown`: also of a file that reports no size but has content.
 */
void read_file(int connection, const char *path, bool reads_unknown);
/* True for the name of an upload's temporary file. */
bool is_temporary(const char *name);
/* Removes the temporary file. */
void discard_upload(struct upload *upload);
/* Discards the upload, and refuses the request with the reason of `number`. */
_Noreturn void fail_upload(struct upload *upload, int number);
/*
 * Answers that the content may come, receives it up to an empty frame, and counts its bytes. False if the
 * caller disconnects first.
 */
bool receive_upload(struct upload *upload, unsigned long long *size);

#endif
