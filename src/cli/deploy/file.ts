import { dirname, resolve } from 'node:path';
import { EXPOSE, type Expose } from '../../core/address.ts';
import { environment } from '../../core/agent.ts';
import { durable } from '../../core/durable.ts';
import { HTTP_PROFILE_DOC, httpProfileName } from '../../core/http-profiles.ts';
import { PORT_SCHEMA } from '../../core/instance.ts';
import { isJsonObject, type JsonObject } from '../../core/json.ts';
import {
  anyObject,
  boolean,
  integer,
  type Kind,
  kindOf,
  list,
  oneOf,
  record,
  type Schema,
  text,
  wrongAt,
} from '../../core/kind.ts';
import { LIMITS } from '../../core/limits.ts';
import { Problems, quote } from '../../core/problem.ts';
import { restartPolicy } from '../../core/restart-policy.ts';
import { isSecretName, SECRET_NAME_RULE, type SecretRef, type Variables } from '../../core/secret.ts';
import { maybe, type ObjectKind, object, optional, required, type ValueOf } from '../../core/shape.ts';
import { unknownFieldWarnings } from '../../core/unknown-names.ts';
import { HINTS } from '../code/input-schema.ts';
import { usageError } from '../shared/exit.ts';
import { readRequestFile, refuseProblems } from '../shared/input.ts';
import type { Io } from '../shared/io.ts';

export const DEPLOY_FILE = 'rookery.yaml';

const path = (description: string) => required(text({ required: true }), description);

/** Fields that agents and functions share. */
const RUNS = {
  code: path('The directory with the code, from the directory of this file. It is packed and uploaded.'),
  runtime: required(text({ required: true }), { examples: ['python3.11'] }),
  handler: optional(text(), '', '`module.function`, what each call runs.'),
  httpProfile: optional(httpProfileName, '', HTTP_PROFILE_DOC),
  dependencies: optional(
    oneOf(['auto', 'none']),
    'auto',
    '`auto`: what `requirements.txt`, `pyproject.toml` or `package.json` beside the code ask for is installed.',
  ),
  initializer: optional(text(), '', '`module.function`, once at the start.'),
  preStop: optional(text(), '', '`module.function`, once at the end.'),
  env: optional(environment, {}, 'Environment variables.'),
  cpu: optional(integer(LIMITS.cpuMillis), LIMITS.cpuMillis.default, 'Thousandths of a core.'),
  memory: optional(integer(LIMITS.memoryMb), LIMITS.memoryMb.default, 'MB.'),
  sandbox: optional(text(), '', 'The type of the sandbox; empty: the default of the service.'),
  image: optional(text({ required: true }), 'host', 'The image; `host`: the files of the host.'),
  user: optional(text(), '', 'Who runs the code; empty: root.'),
  ports: optional(list(text()), [], { items: { type: 'string', ...PORT_SCHEMA } }),
  expose: maybe<Expose>(EXPOSE, 'Gives a port an address of its own.'),
};

const ON = {
  alarm: optional(text(), '', 'What gets its alarms; else the handler.'),
  sleep: optional(text(), '', 'What runs before it falls asleep.'),
};

const AGENT = {
  ...RUNS,
  namespace: maybe(text({ required: true }), 'Else that of the file.'),
  restart: maybe(restartPolicy, 'What follows when it ends by itself; absent: `never`.'),
  durable: maybe(durable, '`true`: its state is saved before each answer, and a deploy keeps it.'),
  on: maybe(object(ON), 'Functions of a durable agent, each as `module.function`.'),
};

const inputSchema: Kind<JsonObject | typeof HINTS> = kindOf(
  { anyOf: [{ type: 'object' }, { enum: [HINTS] }] },
  (value, path, problem) => {
    if (value === HINTS) return HINTS;
    return isJsonObject(value)
      ? value
      : wrongAt(path, `must be a JSON Schema or "${HINTS}", got ${quote(value)}`, problem);
  },
);

const FUNCTION = {
  ...RUNS,
  kind: optional(oneOf(['faas', 'agent']), 'faas', '`agent`: agents are made from it.'),
  on: maybe(object(ON), 'With `kind: agent`: functions of its durable agents, each as `module.function`.'),
  description: optional(text(), ''),
  timeout: optional(
    integer({ min: 1, max: LIMITS.functionTimeoutSeconds.max }),
    LIMITS.functionTimeoutSeconds.default,
    'Seconds.',
  ),
  minInstances: optional(integer({ min: 0, max: LIMITS.functionInstances.max }), LIMITS.functionInstances.defaultMin),
  maxInstances: optional(integer({ min: 0, max: LIMITS.functionInstances.max }), LIMITS.functionInstances.defaultMax),
  concurrency: optional(
    integer({ min: 1, max: LIMITS.functionConcurrency.max }),
    LIMITS.functionConcurrency.default,
    'Calls at once in one instance.',
  ),
  inputSchema: maybe(
    inputSchema,
    'The JSON Schema of the event; `hints`: from the type hints of a handler in Python. With it and a description, the function is a tool of the MCP server.',
  ),
  validateInput: optional(boolean, false, 'Events that do not fit `inputSchema` are refused before the call.'),
};

const JOB = {
  command: path('One line for `/bin/sh -c`.'),
  code: maybe(text({ required: true }), 'The directory that it runs in a copy of, from the directory of this file.'),
  schedule: maybe(text({ required: true }), 'When it runs, as in cron. Absent: once, whenever it has changed.'),
  timezone: optional(text(), 'UTC', 'Of the schedule.'),
  mayOverlap: optional(boolean, false, 'Whether a scheduled one begins while the one before runs.'),
  env: optional(environment, {}, 'Environment variables.'),
  pip: optional(list(text()), [], 'Packages of Python.'),
  retries: optional(integer({ min: 0, max: 20 }), 0),
};

const POOL = {
  group: optional(text(), 'default'),
  size: required(integer({ min: 0, max: 1_000_000 })),
  maxSize: optional(integer({ min: 0, max: 1_000_000 }), 0, '0: the size.'),
  resources: required(anyObject, 'As Kubernetes has them: `requests` and `limits`.'),
  image: optional(text(), ''),
  labels: optional(record(text()), {}),
  env: optional(record(text()), {}),
};

export type DeployedAgent = ValueOf<typeof AGENT>;
export type DeployedFunction = ValueOf<typeof FUNCTION>;
export type DeployedJob = ValueOf<typeof JOB>;
export type DeployedPool = ValueOf<typeof POOL>;

const ENTRIES = {
  agents: object<DeployedAgent>(AGENT),
  functions: object<DeployedFunction>(FUNCTION),
  jobs: object<DeployedJob>(JOB),
  pools: object<DeployedPool>(POOL),
};

const FILE = object({
  namespace: optional(text({ required: true }), 'default', 'Of the agents.'),
  secrets: optional(
    list(text({ required: true })),
    [],
    'Names of secrets that have to be there, beside those that environments here refer to.',
  ),
  agents: optional(record(ENTRIES.agents), {}, 'By their names.'),
  functions: optional(record(ENTRIES.functions), {}, 'By their names: `hello`, `demo@hello` or `0@demo@hello`.'),
  jobs: optional(record(ENTRIES.jobs), {}, 'By their names.'),
  pools: optional(record(ENTRIES.pools), {}, 'By their ids.'),
});

/** The resources that a file declares. */
export type Deployment = ValueOf<(typeof FILE)['fields']> & {
  /** Base of the relative paths. */
  readonly directory: string;
  readonly file: string;
};

/** Reads `rookery.yaml`. Reports all of its problems at once. */
export async function readDeployment(io: Io, file: string): Promise<Deployment> {
  const value = await readRequestFile(io, file, ' "rookery init" makes one; -f names another.');
  if (!isJsonObject(value)) throw usageError(`${file} must be a map with agents, functions, jobs or pools.`);
  const problems = new Problems();
  const read = FILE.read(value, '', problems.add);
  for (const sentence of unknownFields(value)) problems.add('', sentence);
  if (read === undefined || problems.any) refuseProblems(file, problems.found);
  const whole = resolve(file);
  return { ...read, directory: dirname(whole), file: whole };
}

/**
 * Returns a sentence for each unknown field. An unknown field is an error, because the deployment would lack
 * the part that its author intended.
 */
function unknownFields(value: Readonly<Record<string, unknown>>): readonly string[] {
  const inEntries = Object.entries(ENTRIES).flatMap(([noun, entry]) => {
    const all = value[noun];
    if (!isJsonObject(all)) return [];
    return Object.entries(all).flatMap(([name, each]) =>
      unknownFieldWarnings(entry as unknown as Kind<unknown>, each).map(warning => `${noun}.${name}: ${warning}`),
    );
  });
  const ofFile = unknownFieldWarnings(FILE as unknown as Kind<unknown>, value);
  return [...ofFile, ...inEntries].map(warning => warning.replace(' was ignored', ' is not known'));
}

/** Returns the JSON Schema of the file, for editors. */
export function deploySchema(): Schema {
  const closed = (kind: ObjectKind<never>): Schema => ({ ...kind.describe(), additionalProperties: false });
  const schema = FILE.describe() as { readonly properties: Record<string, Schema> };
  const entries = Object.entries(ENTRIES).map(([noun, entry]) => [
    noun,
    { ...schema.properties[noun], additionalProperties: closed(entry as unknown as ObjectKind<never>) },
  ]);
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'rookery.yaml',
    description: 'What "rookery deploy" brings a service to.',
    ...schema,
    properties: { ...schema.properties, ...Object.fromEntries(entries) },
    additionalProperties: false,
  };
}

export interface VariableOptions {
  readonly env?: readonly string[];
  readonly secret?: readonly string[];
}

/** Returns the environment of `--env` and `--secret`, or undefined when neither is given. */
export function variablesOf({ env, secret }: VariableOptions): Variables | undefined {
  if (env === undefined && secret === undefined) return undefined;
  return { ...parsePairs(env ?? [], '--env'), ...Object.fromEntries((secret ?? []).map(parseSecret)) };
}

/** Parses `NAME=value` pairs into a map. */
export function parsePairs(pairs: readonly string[], flag: string): Record<string, string> {
  return Object.fromEntries(
    pairs.map(pair => {
      const at = pair.indexOf('=');
      if (at < 1) throw usageError(`${flag} must be NAME=value, not ${JSON.stringify(pair)}.`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

/** Returns a variable of a record as text for people. */
export function shownVariable(value: string | SecretRef): string {
  return typeof value === 'string' ? value : `(secret ${value.secret})`;
}

function parseSecret(text: string): [string, SecretRef] {
  const at = text.indexOf('=');
  const [variable, name] = at === -1 ? [text, text] : [text.slice(0, at), text.slice(at + 1)];
  if (variable !== '' && isSecretName(name)) return [variable, { secret: name }];
  throw usageError(
    `--secret must be NAME or NAME=secret, where the name of the secret is ${SECRET_NAME_RULE}; not ${JSON.stringify(text)}.`,
  );
}
