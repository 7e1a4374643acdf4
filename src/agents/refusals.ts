import { Away, alreadyExists, failedPrecondition, notFound, resourceExhausted, unavailable } from '../core/error.ts';
import type { Instance } from '../core/instance.ts';

/** Refusals of agents: each text is written once. */

/** Only a running one can be called; one that ended by itself is kept, and whoever calls it wants to know why and what to do. */
export const instanceFailed = (id: string, reason: string) =>
  notFound(
    `instance not found: ${id}: it is FAILED${reason === '' ? '' : ` (${reason})`}; POST /api/agent/${id}/restart (rookery agent restart) starts it again`,
  );

export const tooManyStarting = () => resourceExhausted('too many instances are starting', { retryAfterSeconds: 1 });

export const serverStopping = () => unavailable('the server is stopping');

export const nameTaken = ({ id, spec }: Instance) =>
  alreadyExists(`agent ${spec.namespace}/${spec.name} already exists`, { body: { instance_id: id } });

export const keyUsed = (key: string) => alreadyExists(`idempotency key ${key} was used with another request`);

/** The answer of a create that died with its server: its id would be one that is about to go. The same again succeeds soon. */
export const createUndone = (key: string) =>
  new Away(`the create with idempotency key ${key} was cut off by the end of an earlier server and is being undone`, {
    retryAfterSeconds: 1,
  });

export const notRunning = (id: string) => failedPrecondition(`instance ${id} is not running`);

const DOING = { create: 'created', restart: 'restarted', delete: 'deleted' } as const;

/** Something else is being done to it as a whole. */
export const isBeing = (doing: keyof typeof DOING, id: string) =>
  alreadyExists(`instance ${id} is being ${DOING[doing]}`);

/** The answer to a start that a delete has ended; nobody learned of an instance that was being created. */
export const deletedMeanwhile = (doing: 'create' | 'restart', id: string) =>
  doing === 'create'
    ? unavailable('the instance was deleted while it was starting')
    : alreadyExists(`instance ${id} was deleted while it was starting`);

/** It had no such run, or nothing of it is kept. */
export const noPreviousRun = (id: string, run: number) =>
  notFound(`no log of an earlier run is kept: instance ${id}, run ${run} before this one`);

export const noSandbox = (id: string) => failedPrecondition(`instance ${id} has no sandbox`);

/** It exists, but neither can its node be reached nor is the node given up. */
export const nodeNotAnswering = (id: string) =>
  new Away(`the node that runs instance ${id} does not answer`, { retryAfterSeconds: 1 });
