import {
  Asleep,
  Away,
  alreadyExists,
  failedPrecondition,
  notFound,
  resourceExhausted,
  ServiceError,
  unavailable,
} from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';

/** Refusals of agents. Each text is written once. */

/** Refuses a call of a FAILED agent, with the reason and the command that restarts the agent. */
export const instanceFailed = (id: string, reason: string) =>
  notFound(
    `instance not found: ${id}: it is FAILED${reason === '' ? '' : ` (${reason})`}; POST /api/agent/${id}/restart (rookery agent restart) starts it again`,
  );

/** Returns when a restart policy starts a FAILED agent, as the end of a sentence; `''`: it does not. */
export const startsAgain = (atMs: number) =>
  atMs === 0 ? '' : `; its restart policy starts it again at ${new Date(atMs).toISOString()}`;

export const tooManyStarting = () => resourceExhausted('too many instances are starting', { retryAfterSeconds: 1 });

/** Refuses to start one more agent than `agents.maxAwake`. */
export const tooManyAwake = (most: number) =>
  resourceExhausted(`${most} agents are awake already (agents.maxAwake), and none of them can sleep now`, {
    retryAfterSeconds: 1,
  });

export const serverStopping = () => unavailable('the server is stopping');

export const nameTaken = ({ id, spec }: Instance) =>
  alreadyExists(`agent ${spec.namespace}/${spec.name} already exists`, { body: { instance_id: id } });

/** Refuses to replace an agent because the new one's code failed to load. The old agent continues. */
export const codeNotLoaded = ({ namespace, name }: Pick<InstanceSpec, 'namespace' | 'name'>, reason: string) =>
  unavailable(`the code of agent ${namespace}/${name} could not be loaded: ${reason}`);

export const keyUsed = (key: string) => alreadyExists(`idempotency key ${key} was used with another request`);

/**
 * Refuses a retried create whose first attempt was interrupted by the end of its server. The agent of the
 * first attempt is being removed, so its id is useless. A later retry succeeds.
 */
export const createUndone = (key: string) =>
  new Away(`the create with idempotency key ${key} was cut off by the end of an earlier server and is being undone`, {
    retryAfterSeconds: 1,
  });

export const notRunning = (id: string) => failedPrecondition(`instance ${id} is not running`);

/** Refuses calls and accesses of a PAUSED agent. */
export const isPaused = (id: string) =>
  failedPrecondition(`instance ${id} is paused; POST /api/agent/${id}/resume (rookery agent resume) continues it`);

/** Refuses a request with `X-Rookery-Wake: never` for a SLEEPING agent. */
export const isAsleep = (id: string) => new Asleep(`instance ${id} is asleep`);

/** Refuses to start a durable agent again too soon after a start that failed. */
export const startsLater = (id: string, reason: string, seconds: number) =>
  unavailable(`instance ${id} does not start: ${reason}; the next try is in ${seconds} s`, {
    retryAfterSeconds: seconds,
  });

/** Reason why an agent in a crash loop is not started. */
export const endsAgain = (times: number, reason: string) =>
  `it has ended ${times} times in a row within 60 s of its start (${reason})`;

/** Refuses to cancel an alarm that does not exist. */
export const noAlarm = (id: string, name: string) => notFound(`instance ${id} has no alarm ${name}`);

/** Refuses to put an agent without saved state to sleep, or to set an alarm of it. */
export const notDurable = (id: string) =>
  failedPrecondition(
    `instance ${id} is not durable: only an agent that was created with "durable" sleeps and has alarms`,
  );

/** Refuses to change the settings of an agent that keeps no state over a start. */
export const notChangeable = (id: string) =>
  failedPrecondition(
    `instance ${id} is not durable: only settings of durable agents change; create it with "replace": true instead`,
  );

export function fail(error: ServiceError): never {
  throw error;
}

/** Refuses to put an agent to sleep that is in use. `because`: its uses. */
export class InUse extends ServiceError {
  constructor(id: string, because: readonly string[]) {
    super('failed_precondition', `instance ${id} is in use (${because.join(', ')}); try again when it is idle`, {
      body: { awake_because: because },
    });
  }
}

export const alreadyPaused = (id: string) => alreadyExists(`instance ${id} is already paused`);

const DOING = {
  create: 'created',
  restart: 'restarted',
  pause: 'paused',
  resume: 'resumed',
  sleep: 'put to sleep',
  update: 'changed',
  delete: 'deleted',
} as const;

/** Refuses an operation because another one is changing the whole instance. */
export const isBeing = (doing: keyof typeof DOING, id: string) =>
  alreadyExists(`instance ${id} is being ${DOING[doing]}`);

/** Refuses a start that a delete has ended. For a create the code is `unavailable`: no client has the id. */
export const deletedMeanwhile = (doing: 'create' | 'restart', id: string) =>
  doing === 'create'
    ? unavailable('the instance was deleted while it was starting')
    : alreadyExists(`instance ${id} was deleted while it was starting`);

/** Refuses to read the log of an earlier run that did not exist or is no longer kept. */
export const noPreviousRun = (id: string, run: number) =>
  notFound(`no log of an earlier run is kept: instance ${id}, run ${run} before this one`);

export const noSandbox = (id: string) => failedPrecondition(`instance ${id} has no sandbox`);

/** Refuses a request for an instance whose node is unreachable but not given up. */
export const nodeNotAnswering = (id: string) =>
  new Away(`the node that runs instance ${id} does not answer`, { retryAfterSeconds: 1 });
