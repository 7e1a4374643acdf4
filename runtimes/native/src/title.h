/* The title of this process in `ps` and /proc. */
#ifndef TITLE_H
#define TITLE_H

/* Clears the arguments of this process. A title has no more space than they had. */
void title_room(int count, char *arguments[]);
void show_title(const char *title);

#endif
