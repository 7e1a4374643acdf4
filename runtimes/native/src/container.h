/*
 * The first process of a container of an image without code (`src/sandbox/docker/`). It serves accesses with
 * the accounts of the image, and answers the service as a runtime without code does.
 */
#ifndef CONTAINER_H
#define CONTAINER_H

/*
 * `orders` is a file with a JSON object, which is removed: the secret of the runtime, the default account,
 * the limit of open files, and the paths of both sockets. The variables are those of this process.
 */
_Noreturn void run_container(const char *orders);

#endif
