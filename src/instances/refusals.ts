import { SERVICE_CODES } from '../core/codes.ts';
import { messageOf, notFound, resourceExhausted, unavailable } from '../core/error.ts';

/** Refusals that any owner's callers may get: each text is written once. */
export const instanceNotFound = (id: string) => notFound(`instance not found: ${id}`);

export const tooManyWaiting = () => resourceExhausted('too many calls are waiting', { retryAfterSeconds: 1 });

/** The number is that of a machine without capacity, for calls of functions. */
export const openCallsFull = () =>
  resourceExhausted('the memory for open calls is full', {
    number: SERVICE_CODES.machineFull.code,
    retryAfterSeconds: 1,
  });

/** Also while it is waited for in the background. */
export const notAnswering = (id: string) =>
  unavailable(`instance ${id} has not answered yet since the server came back; it is waited for`, {
    retryAfterSeconds: 1,
  });

/** Why one that was to have another sandbox has none. */
export const restartFailed = (error: unknown) => `the restart failed: ${messageOf(error)}`;
