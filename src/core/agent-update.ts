import { EXPOSE, type Expose } from './address.ts';
import {
  type AgentFunction,
  agentMount,
  type ExecutorDefaults,
  environment,
  extendedHandler,
  resolveRegistered,
  rootfs,
  runtimeSpec,
  withPackage,
} from './agent.ts';
import { assertFilesFit, type Durable, durable, entriesOf, withSleep } from './durable.ts';
import { failedPrecondition, invalidRequest } from './error.ts';
import { httpProfileProblem } from './http-profiles.ts';
import { type InstanceSpec, type MountSpec, parsePorts } from './instance.ts';
import { failAtFirst, type JsonObject } from './json.ts';
import { list, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { type RestartPolicy, restartPolicy } from './restart-policy.ts';
import type { Variables } from './secret.ts';
import { kept, maybe, object, type ValueOf } from './shape.ts';

const { sandbox_type: _type, rootfs: _rootfs, extendedHandler: _handlers, ...plain } = runtimeSpec.fields;

const SPEC_FIELDS = {
  ...kept(plain),
  extendedHandler: maybe(object(kept(extendedHandler.fields)), 'Empty: there is none.'),
  rootfs: maybe(object(kept(rootfs.fields))),
};

const UPDATE_FIELDS = {
  runtime_spec: maybe(object<ValueOf<typeof SPEC_FIELDS>>(SPEC_FIELDS)),
  urn: maybe(text({ required: true }), 'Another version of the registered function; excludes `runtime_spec`.'),
  env_vars: maybe(environment, 'All variables of the caller.'),
  mounts: maybe(list(agentMount, LIMITS.mounts), 'All mounts of the caller, also that of the code.'),
  expose: maybe<Expose>(EXPOSE, 'null: it loses its address.'),
  restart_policy: maybe(restartPolicy, 'null: `never`.'),
  durable: maybe(durable, 'Its idle time, and its files.'),
};

/** The body that changes settings of a durable agent. Members that it does not name stay as they are. */
export const AGENT_UPDATE = object<ValueOf<typeof UPDATE_FIELDS>>(UPDATE_FIELDS);

type SentSpec = ValueOf<typeof SPEC_FIELDS>;

/** Changed settings of a durable agent. Absent members stay as they are; null removes. */
export interface AgentUpdate {
  readonly spec?: SentSpec | undefined;
  readonly urn?: string | undefined;
  readonly envVars?: Variables | undefined;
  readonly mounts?: readonly MountSpec[] | undefined;
  readonly expose?: Expose | null | undefined;
  readonly restartPolicy?: RestartPolicy | null | undefined;
  readonly durable?: Durable | undefined;
}

/** Reads the body. Fails with `invalid_request`. */
export function readAgentUpdate(body: JsonObject): AgentUpdate {
  const sent = AGENT_UPDATE.read(body, '', failAtFirst) as ValueOf<typeof UPDATE_FIELDS>;
  const names = Object.keys(UPDATE_FIELDS).filter(name => body[name] !== undefined);
  if (names.length === 0)
    throw invalidRequest(`invalid request body: it must name one of ${Object.keys(UPDATE_FIELDS).join(', ')}`);
  const { runtime_spec, urn, env_vars, mounts, expose, restart_policy, durable: asked } = sent;
  if (asked === false) throw invalidRequest('invalid request body: durable: a durable agent cannot become another');
  if (urn !== undefined && runtime_spec !== undefined)
    throw invalidRequest('invalid request body: urn and runtime_spec exclude each other; leave out one of them');
  return {
    ...{ spec: runtime_spec, urn, envVars: env_vars, mounts: mounts?.map(withPackage), durable: asked },
    expose: body.expose === null ? null : expose,
    restartPolicy: body.restart_policy === null ? null : restart_policy,
  };
}

/** Returns a spec with the settings of an update, except its function. Fails with `invalid_request`. */
export function updatedSpec(spec: InstanceSpec, update: AgentUpdate): InstanceSpec {
  const { spec: sent = {} as SentSpec, envVars, mounts, expose, restartPolicy } = update;
  const { expose: oldExpose, restartPolicy: oldPolicy, ...rest } = spec;
  const newExpose = expose === undefined ? oldExpose : expose;
  const newPolicy = restartPolicy === undefined ? oldPolicy : restartPolicy;
  const { initializer, pre_stop } = sent.extendedHandler ?? {};
  const { imageurl, user, ports } = sent.rootfs ?? {};
  const next: InstanceSpec = {
    ...rest,
    ...(newExpose && { expose: newExpose }),
    ...(newPolicy && { restartPolicy: newPolicy }),
    runtime: sent.runtime ?? spec.runtime,
    codePath: sent.codePath ?? spec.codePath,
    handler: sent.handler ?? spec.handler,
    ...(sent.httpProfile !== undefined && { httpProfile: sent.httpProfile }),
    ...(sent.dependencies !== undefined && { dependencies: sent.dependencies }),
    initializer: initializer ?? spec.initializer,
    preStop: pre_stop ?? spec.preStop,
    rootfs: { ...spec.rootfs, imageUrl: imageurl ?? spec.rootfs.imageUrl, user: user ?? spec.rootfs.user },
    ports: ports === undefined ? spec.ports : parsePorts(ports, 'runtime_spec.rootfs.ports'),
    cpuMillis: sent.cpu ?? spec.cpuMillis,
    memoryMb: sent.memory ?? spec.memoryMb,
    env: envVars ?? spec.env,
    mounts: mounts ?? spec.mounts,
    durable: durableOf(spec, update),
  };
  const wrongProfile = httpProfileProblem(next.httpProfile ?? '', next);
  const { files } = next.durable ?? {};
  const places = [next.codePath, ...next.mounts.map(({ target }) => target)].filter(place => place.startsWith('/'));
  if (files) assertFilesFit({ files }, next.sandboxType, places);
  if (wrongProfile !== null) throw invalidRequest(`invalid request body: runtime_spec.httpProfile ${wrongProfile}`);
  return next;
}

function durableOf({ durable: now, idleMs }: InstanceSpec, { durable: asked, spec }: AgentUpdate): Durable {
  const { alarm, sleep } = { ...now?.entries, ...withoutAbsent(spec?.extendedHandler ?? {}) };
  const entries = entriesOf({ alarm: alarm ?? '', sleep: sleep ?? '' });
  const sleepMs = asked?.sleepMs ?? now?.sleepMs;
  const timed = withSleep({ schema: now?.schema ?? 1, ...(sleepMs !== undefined && { sleepMs }) }, idleMs);
  const files = asked?.files ?? now?.files;
  return { ...timed, ...(entries && { entries }), ...(files && { files }) };
}

function withoutAbsent<T extends object>(value: T): Partial<T> {
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined)) as Partial<T>;
}

/** Returns what the caller added to a registered function. */
export function ownOf(
  { env, mounts }: InstanceSpec,
  before: AgentFunction,
): { readonly env: Variables; readonly mounts: readonly MountSpec[] } {
  const isOwn = ([name, value]: [string, unknown]) =>
    JSON.stringify(before.environment[name]) !== JSON.stringify(value);
  return {
    env: Object.fromEntries(Object.entries(env).filter(isOwn)) as Variables,
    mounts: mounts.slice(before.mounts.length),
  };
}

/**
 * Returns the spec of an agent after a change of what its function gives. `before`: the version that it was
 * made from, which separates the caller's variables and mounts. Fails with `failed_precondition`.
 */
export function respecified(
  spec: InstanceSpec,
  { envVars, mounts }: Pick<AgentUpdate, 'envVars' | 'mounts'>,
  { before, after }: { readonly before: AgentFunction; readonly after: AgentFunction },
  defaults: ExecutorDefaults,
): InstanceSpec {
  const own = ownOf(spec, before);
  const { entries: _entries, ...durable } = spec.durable ?? { schema: 1 };
  const request = {
    ...spec,
    durable,
    envVars: envVars ?? own.env,
    mounts: mounts ?? own.mounts,
  };
  const next = resolveRegistered(request, after, defaults);
  if (next.sandboxType !== spec.sandboxType)
    throw failedPrecondition(
      `the function runs in a sandbox of type ${next.sandboxType}, and that of an agent cannot change: ${spec.sandboxType}`,
    );
  return { ...next, ...(next.pool === undefined && spec.pool && { pool: spec.pool }) };
}
