/* Serves one access to a sandbox that another program has made. */
#ifndef ENTRY_H
#define ENTRY_H

/*
 * Serves an access to the instance of a pod, for its manager (`rookery_zygote/access.py`). This descriptor
 * has the facts: the kind of access, the connection, and how a process becomes the user.
 */
_Noreturn void serve_access_from_facts(int descriptor);
/*
 * Serves an access to a container of this machine, for `rookery_zygote/entrance.py`. The connection brings
 * two frames: the container, and the request.
 */
_Noreturn void serve_container(int connection);

#endif
