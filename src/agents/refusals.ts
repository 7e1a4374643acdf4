import { alreadyExists, failedPrecondition, notFound, resourceExhausted, unavailable } from '../core/error.ts';
import type { Instance } from '../core/instance.ts';

/** The scheduler's own refusals: each text is written once. */
export const instanceNotFound = (id: string) => notFound(`instance not found: ${id}`);

/** Only a running one can be called; one that ended by itself is kept, and whoever calls it wants to know why and what to do. */
export const instanceFailed = (id: string, reason: string) =>
  notFound(
    `instance not found: ${id}: it is FAILED${reason === '' ? '' : ` (${reason})`}; POST /api/agent/${id}/restart (rookery agent restart) starts it again`,
  );

export const tooManyWaiting = () => resourceExhausted('too many calls are waiting', { retryAfterSeconds: 1 });

/** The number is that of a machine without room, for calls of functions. */
export const openCallsFull = () =>
  resourceExhausted('the memory for open calls is full', { number: 150510, retryAfterSeconds: 1 });

export const tooManyStarting = () => resourceExhausted('too many instances are starting', { retryAfterSeconds: 1 });

export const serverStopping = () => unavailable('the server is stopping');

export const nameTaken = ({ id, spec }: Instance) =>
  alreadyExists(`agent ${spec.namespace}/${spec.name} already exists`, { body: { instance_id: id } });

export const keyUsed = (key: string) => alreadyExists(`idempotency key ${key} was used with another request`);

/** The answer of a create that died with its server: its id would be one that is about to go. */
export const createUndone = (key: string) =>
  unavailable(
    `the create with idempotency key ${key} was cut off by the end of an earlier server and is being undone`,
    {
      retryAfterSeconds: 1,
    },
  );

export const notRunning = (id: string) => failedPrecondition(`instance ${id} is not running`);

const DOING = { create: 'created', restart: 'restarted', delete: 'deleted' } as const;

/** Something else is being done to it as a whole. */
export const isBeing = (doing: keyof typeof DOING, id: string) =>
  alreadyExists(`instance ${id} is being ${DOING[doing]}`);

/** What a start is told that a delete has ended; nobody was told of an instance that was being created. */
export const deletedMeanwhile = (doing: 'create' | 'restart', id: string) =>
  doing === 'create'
    ? unavailable('the instance was deleted while it was starting')
    : alreadyExists(`instance ${id} was deleted while it was starting`);

/** Also while it is waited for in the background. */
export const notAnswering = (id: string) =>
  unavailable(`instance ${id} has not answered yet since the server came back; it is waited for`, {
    retryAfterSeconds: 1,
  });

export const noSandbox = (id: string) => failedPrecondition(`instance ${id} has no sandbox`);
