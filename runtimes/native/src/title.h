/* What `ps` and /proc show of this process. */
#ifndef TITLE_H
#define TITLE_H

/* The arguments that it was started with: there is no more room than they have. They are cleared. */
void title_room(int count, char *arguments[]);
void show_title(const char *title);

#endif
