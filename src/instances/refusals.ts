import { SERVICE_CODES } from '../core/codes.ts';
import { messageOf, notFound, resourceExhausted, unavailable } from '../core/error.ts';

/** Refusals that agents and functions have in common. Each text is written once. */
export const instanceNotFound = (id: string) => notFound(`instance not found: ${id}`);

export const tooManyWaiting = () => resourceExhausted('too many calls are waiting', { retryAfterSeconds: 1 });

/** Refuses a call with the code of a machine without capacity, which calls of functions expect. */
export const openCallsFull = () =>
  resourceExhausted('the memory for open calls is full', {
    number: SERVICE_CODES.machineFull.code,
    retryAfterSeconds: 1,
  });

/** Refuses a call while the service tries to reach an adopted instance. */
export const notAnswering = (id: string) =>
  unavailable(`instance ${id} has not answered yet since the server came back; try again`, {
    retryAfterSeconds: 1,
  });

/** Returns the status reason of an instance that has no sandbox after a failed restart. */
export const restartFailed = (error: unknown) => `the restart failed: ${messageOf(error)}`;
