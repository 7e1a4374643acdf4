import { type Alarm, alarmNameProblem, readAlarm } from './alarm.ts';
import { invalidRequest } from './error.ts';
import { formatPort, type InstanceSpec, type MountSpec } from './instance.ts';
import { isJsonObject, type JsonObject, parseJson } from './json.ts';
import { LIMITS } from './limits.ts';
import { shownPolicy } from './restart-policy.ts';
import type { Variables } from './secret.ts';

const FORMAT = 'rookery-agent';
const VERSION = 1;

/** Files of an export, by name. */
export interface AgentCopy {
  /** Body of a create. */
  readonly create: JsonObject;
  /** JSON of the saved state; null: nothing was saved. */
  readonly state: string | null;
  readonly alarms: readonly Alarm[];
}

/** Names of the files of an export. */
export const COPY_FILES = { agent: 'agent.json', state: 'state.json', alarms: 'alarms.json' } as const;

/** Largest export that is read: state, alarms with their payloads, and settings. */
export const MOST_COPY_BYTES =
  LIMITS.stateBytes + LIMITS.alarms.perAgent * (LIMITS.alarms.payloadBytes + 4096) + LIMITS.requestBodyBytes;

/** Returns the text of `agent.json`. `origin`: the agent that was exported. */
export function describeCopy(origin: JsonObject, create: JsonObject): string {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, origin, create }, null, 2)}\n`;
}

/**
 * Returns the body of a create that makes the same agent. `own`: what the caller added to a registered
 * function.
 */
export function createBodyOf(
  spec: InstanceSpec,
  own: { readonly env: Variables; readonly mounts: readonly MountSpec[] } = spec,
): JsonObject {
  const { rootfs, durable, ttlMs, idleMs } = spec;
  return {
    namespace: spec.namespace,
    name: spec.name,
    env_vars: own.env,
    mounts: own.mounts.map(({ source, target, readonly }) => ({ source, target, readonly })),
    ...(spec.workspace !== '' && { workspace: spec.workspace }),
    ...(spec.expose && { expose: { ...spec.expose } }),
    ...(spec.restartPolicy && { restart_policy: shownPolicy(spec.restartPolicy) }),
    ...(spec.labels && { labels: spec.labels }),
    ...(ttlMs !== undefined && { ttl_seconds: ttlMs / 1000 }),
    ...(idleMs !== undefined && { idle_seconds: idleMs / 1000 }),
    ...(spec.onExpiry && { on_expiry: spec.onExpiry }),
    durable: {
      sleep_after_seconds: (durable?.sleepMs ?? 0) / 1000,
      ...(durable?.files && { files: { path: durable.files.path, max_mb: durable.files.maxMb } }),
    },
    ...(spec.functionUrn !== ''
      ? { urn: spec.functionUrn }
      : {
          runtime_spec: {
            ...{ runtime: spec.runtime, codePath: spec.codePath, handler: spec.handler },
            ...{ cpu: spec.cpuMillis, memory: spec.memoryMb },
            ...(spec.httpProfile && { httpProfile: spec.httpProfile }),
            ...(spec.dependencies && { dependencies: spec.dependencies }),
            extendedHandler: { initializer: spec.initializer, pre_stop: spec.preStop, ...durable?.entries },
            rootfs: { imageurl: rootfs.imageUrl, user: rootfs.user, ports: spec.ports.map(formatPort) },
          },
        }),
  };
}

/** Reads the files of an export, by name. Fails with `invalid_request`. */
export function readCopy(files: ReadonlyMap<string, string>, newId: () => string, nowMs: number): AgentCopy {
  const text = files.get(COPY_FILES.agent);
  if (text === undefined) throw wrong(`it has no ${COPY_FILES.agent}`);
  const agent = objectOf(COPY_FILES.agent, text);
  if (agent.format !== FORMAT)
    throw wrong(`${COPY_FILES.agent} has the format ${JSON.stringify(agent.format)}, not "${FORMAT}"`);
  if (agent.version !== VERSION)
    throw wrong(`it has version ${JSON.stringify(agent.version)}, and this service reads version ${VERSION}`);
  if (!isJsonObject(agent.create)) throw wrong(`${COPY_FILES.agent}: create must be an object`);
  const state = files.get(COPY_FILES.state) ?? null;
  if (state !== null) checkState(state);
  return { create: agent.create, state, alarms: readAlarms(files.get(COPY_FILES.alarms) ?? '[]', newId, nowMs) };
}

function checkState(text: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes > LIMITS.stateBytes)
    throw wrong(`${COPY_FILES.state} has ${bytes} bytes, more than the limit of ${LIMITS.stateBytes}`);
  objectOf(COPY_FILES.state, text);
}

function readAlarms(text: string, newId: () => string, nowMs: number): readonly Alarm[] {
  const parsed = parseJson(Buffer.from(text));
  if (!parsed.ok || !Array.isArray(parsed.value)) throw wrong(`${COPY_FILES.alarms} must be a list`);
  const { perAgent } = LIMITS.alarms;
  if (parsed.value.length > perAgent) throw wrong(`an agent has at most ${perAgent} alarms`);
  const alarms = parsed.value.map((each: unknown, index) =>
    alarmOf(each, `${COPY_FILES.alarms}[${index}]`, newId, nowMs),
  );
  if (new Set(alarms.map(({ name }) => name)).size < alarms.length) throw wrong('two alarms have one name');
  return alarms;
}

/** Reads an alarm as `alarmJson` writes it. */
function alarmOf(value: unknown, path: string, newId: () => string, nowMs: number): Alarm {
  if (!isJsonObject(value) || typeof value.name !== 'string') throw wrong(`${path} must have a name`);
  const { name, at, every, cron, tz, payload, max_late_seconds, attempts, missed, failed, last_error } = value;
  const problem = alarmNameProblem(name as string);
  if (problem !== undefined) throw wrong(`${path}.name ${problem}`);
  const isRecurring = (every ?? cron ?? null) !== null;
  const more = { payload: payload ?? null, ...(max_late_seconds !== undefined && { max_late_seconds }) };
  const first = readAlarm({ at: at ?? null, ...more } as JsonObject, name as string, newId(), nowMs);
  if (!isRecurring) return { ...first, ...attemptsOf(attempts, missed, failed, last_error) };
  const times = { every: every ?? null, cron: cron ?? null, tz: (every ?? null) === null ? (tz ?? null) : null };
  const { rule } = readAlarm({ ...times, ...more } as JsonObject, name as string, newId(), nowMs);
  return { ...first, rule, ...attemptsOf(attempts, missed, failed, last_error) };
}

function attemptsOf(attempts: unknown, missed: unknown, failed: unknown, lastError: unknown): Partial<Alarm> {
  const count = (value: unknown) => (Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : 0);
  return {
    ...{ attempt: count(attempts), missed: count(missed), hasFailed: failed === true },
    lastError: typeof lastError === 'string' ? lastError.slice(0, 1000) : '',
  };
}

function objectOf(file: string, text: string): JsonObject {
  const parsed = parseJson(Buffer.from(text));
  if (parsed.ok && isJsonObject(parsed.value)) return parsed.value;
  throw wrong(`${file} must be a JSON object`);
}

function wrong(why: string) {
  return invalidRequest(`invalid export: ${why}`);
}
