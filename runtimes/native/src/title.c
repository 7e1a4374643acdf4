#include "title.h"

#include <string.h>
#include <sys/prctl.h>

static char *room;
static size_t room_size;

void title_room(int count, char *arguments[])
{
    room = arguments[0];
    room_size = (size_t)(arguments[count - 1] + strlen(arguments[count - 1]) - room);
    memset(room, 0, room_size);
}

void show_title(const char *title)
{
    size_t size = strnlen(title, room_size);
    prctl(PR_SET_NAME, title);
    memset(room, 0, room_size);
    memcpy(room, title, size);
}
