import { variables } from './environment.ts';
import { invalidRequest } from './error.ts';
import { failAtFirst, type JsonObject } from './json.ts';
import { anyObject, boolean, integer, type Kind, list, record, text } from './kind.ts';
import { maybe, object, optional, required, type ValueOf } from './shape.ts';

/** Longest life of a sandbox, in seconds: ten years. */
const MAX_SECONDS = 315_360_000;
/** Life of a sandbox whose request names none, in seconds. */
export const DEFAULT_SECONDS = 300;
/** Life of a sandbox of the old create route whose request names none. */
export const OLD_DEFAULT_SECONDS = 15;

/** Most sandboxes of one fork. */
const MAX_FORKS = 20;

const seconds = integer({ min: 1, max: MAX_SECONDS });
const autoResume = object({ enabled: optional(boolean, false) }, { isFree: true });

const CREATE_FIELDS = {
  templateID: required(text({ required: true })),
  timeout: maybe(seconds),
  metadata: optional(record(text()), {}),
  envVars: optional(variables(text()), {}),
  autoPause: optional(boolean, false),
  autoPauseMemory: optional(boolean, true),
  autoResume: optional(autoResume, { enabled: false }),
  secure: maybe(boolean),
  allow_internet_access: optional(boolean, true),
  network: maybe(anyObject),
  mcp: maybe(anyObject),
  iam: maybe(anyObject),
  volumeMounts: optional(list(anyObject), []),
};

/** The body of a create of the E2B protocol. */
export type E2bCreate = ValueOf<typeof CREATE_FIELDS>;

const CREATE = object<E2bCreate>(CREATE_FIELDS, { isFree: true });

/** Reads the body of a create. Fails with `invalid_request` at the first problem. */
export function readE2bCreate(body: JsonObject): E2bCreate {
  const create = readFields(CREATE, body);
  const { network, mcp, iam, volumeMounts } = create;
  const lacking = (what: string) => invalidRequest(`invalid request body: ${what} is not supported by this service`);
  if (mcp !== undefined) throw lacking('mcp');
  if (iam !== undefined) throw lacking('iam');
  if (volumeMounts.length > 0) throw lacking('volumeMounts');
  if (!create.autoPauseMemory) throw lacking('autoPauseMemory: false');
  if (!create.allow_internet_access) throw lacking('allow_internet_access: false');
  if (network !== undefined) checkNetwork(network);
  return create;
}

/** Returns true if requests to ports of the sandbox need a token. */
export function hasPrivatePorts({ network }: E2bCreate): boolean {
  return network?.allowPublicTraffic === false;
}

const TIMEOUT = object({ timeout: maybe(integer({ min: -MAX_SECONDS, max: MAX_SECONDS })) }, { isFree: true });
const CONNECT = object({ timeout: maybe(seconds), memory: optional(boolean, true) }, { isFree: true });
const REFRESH = object({ duration: maybe(seconds) }, { isFree: true });
const FORK = object(
  {
    timeout: maybe(seconds),
    count: optional(integer({ min: 1, max: MAX_FORKS }), 1),
    memory: optional(boolean, true),
  },
  { isFree: true },
);
const PAUSE = object({ memory: optional(boolean, true) }, { isFree: true });

/** Reads the body of a change of the time to live, in seconds; 0 or less: the sandbox ends now. */
export function readE2bTimeout(body: JsonObject): number {
  const { timeout } = readFields(TIMEOUT, body);
  if (timeout === undefined) throw invalidRequest('invalid request body: timeout is required');
  return timeout;
}

/** Reads the body of a connect or resume. Returns seconds. */
export function readE2bConnect(body: JsonObject): number {
  const { timeout, memory } = readFields(CONNECT, body);
  if (!memory) throw invalidRequest('invalid request body: memory: false is not supported by this service');
  return timeout ?? DEFAULT_SECONDS;
}

/**
 * Reads the body of a fork. `timeout` is in seconds. `memory` false: the files suffice, although the sandbox
 * runs processes.
 */
export function readE2bFork(body: JsonObject) {
  const { timeout = DEFAULT_SECONDS, count, memory } = readFields(FORK, body);
  return { timeout, count, memory };
}

/** Reads the body of a keep-alive. Returns seconds. */
export function readE2bRefresh(body: JsonObject): number {
  return readFields(REFRESH, body).duration ?? DEFAULT_SECONDS;
}

/** Checks the body of a pause. Fails with `invalid_request`. */
export function checkE2bPause(body: JsonObject): void {
  if (!readFields(PAUSE, body).memory) {
    throw invalidRequest('invalid request body: memory: false is not supported by this service');
  }
}

/** Returns the name of a template without its tag. */
export function templateNameOf(templateId: string): string {
  const colon = templateId.lastIndexOf(':');
  return colon > templateId.lastIndexOf('/') ? templateId.slice(0, colon) : templateId;
}

/** A list query of the E2B protocol. */
export interface E2bListQuery {
  readonly metadata: Readonly<Record<string, string>>;
  readonly states: ReadonlySet<'running' | 'paused'>;
  /** Names that match: the sent one, and the sent one without its tag. undefined: any template. */
  readonly template: readonly string[] | undefined;
  /** In milliseconds since 1970; null: any time. */
  readonly startedAfterMs: number | null;
  readonly isNewestFirst: boolean;
  readonly limit: number;
  /** null: the first page. */
  readonly nextToken: string | null;
}

const MAX_LIMIT = 100;

/** Reads the query of `GET /v2/sandboxes`. Fails with `invalid_request`. */
export function readE2bList(query: URLSearchParams): E2bListQuery {
  const states = (query.get('state') ?? '').split(',').filter(each => each !== '');
  for (const state of states) {
    if (state !== 'running' && state !== 'paused') throw wrong('state', 'running or paused', state);
  }
  const order = query.get('order') ?? 'desc';
  if (order !== 'asc' && order !== 'desc') throw wrong('order', 'asc or desc', order);
  const limit = query.get('limit') ?? String(MAX_LIMIT);
  if (!/^\d{1,4}$/.test(limit) || Number(limit) < 1 || Number(limit) > MAX_LIMIT) {
    throw wrong('limit', `a number from 1 to ${MAX_LIMIT}`, limit);
  }
  const template = query.get('template') ?? '';
  return {
    metadata: readMetadata(query.get('metadata') ?? ''),
    states: new Set(states.length === 0 ? ['running', 'paused'] : (states as ('running' | 'paused')[])),
    template: template === '' ? undefined : [...new Set([template, templateNameOf(template)])],
    startedAfterMs: readTime('startedAfter', query.get('startedAfter')),
    isNewestFirst: order === 'desc',
    limit: Number(limit),
    nextToken: query.get('nextToken') || null,
  };
}

/** Reads the parameter `start` or `end` of the metrics, in seconds since 1970. Returns milliseconds. */
export function readE2bSeconds(name: string, query: URLSearchParams): number | null {
  const sent = query.get(name);
  if (sent === null || sent === '') return null;
  if (!/^\d{1,12}$/.test(sent)) throw wrong(name, 'seconds since 1970', sent);
  return Number(sent) * 1000;
}

/**
 * Reads metadata from the value of its parameter. Clients encode it three times: the router's query is
 * decoded, the value is a query again, and its names and values are encoded once more.
 */
function readMetadata(sent: string): Record<string, string> {
  const pairs = [...new URLSearchParams(sent)].map(([name, value]) => [decoded(name), decoded(value)] as const);
  return Object.fromEntries(pairs);
}

function decoded(sent: string): string {
  try {
    return decodeURIComponent(sent);
  } catch {
    return sent;
  }
}

const RFC_3339 = /^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+ -]\d{2}:\d{2})$/i;

/** Returns whole milliseconds since 1970, which is the precision in which clients see the time of a start. */
function readTime(name: string, sent: string | null): number | null {
  if (sent === null || sent === '') return null;
  const [, date = '', fraction = '', zone = ''] = RFC_3339.exec(sent) ?? [];
  const wholeMs = Date.parse(`${date.replace(' ', 'T')}${zone.replace(' ', '+').toUpperCase()}`);
  if (Number.isNaN(wholeMs)) throw wrong(name, 'a time such as 2026-01-31T12:00:00Z', sent);
  return wholeMs + Math.floor(Number(`0.${fraction || 0}`) * 1000);
}

function wrong(name: string, expected: string, sent: string) {
  return invalidRequest(`invalid query: ${name} must be ${expected}, got ${JSON.stringify(sent.slice(0, 80))}`);
}

function readFields<T>(kind: Kind<T>, body: JsonObject): T {
  return kind.read(body, '', failAtFirst) as T;
}

/** Checks that the settings ask for nothing but the access to ports. Fails with `invalid_request`. */
function checkNetwork(network: JsonObject): void {
  for (const [name, value] of Object.entries(network)) {
    const isEmpty = value === null || ['[]', '{}'].includes(JSON.stringify(value));
    if (isEmpty || (name === 'allowPublicTraffic' && typeof value === 'boolean')) continue;
    throw invalidRequest(`invalid request body: network.${name.slice(0, 40)} is not supported by this service`);
  }
}
