import { signal } from '@preact/signals';
import { type Operations, PATHS } from '../../clients/typescript/src/generated.ts';

/** Client of the service. Its paths and types come from the OpenAPI documents. */

export interface Session {
  readonly authentication: boolean;
  readonly tenant: string | null;
  readonly role: 'viewer' | 'user' | 'developer';
  readonly sees_service: boolean;
  readonly version: string;
}

/** The current session. Undefined while it is read, null when a login is required. */
export const session = signal<Session | null | undefined>(undefined);
/** Tenant of the requests, if the session may act for every tenant. */
export const tenant = signal(sessionStorage.getItem('tenant') ?? 'default');

/** Error of an answer without success. Status 0: the service did not answer. */
export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

type Name = keyof Operations;
/** An answer of the registry that carries a code; `call` fails for it. */
type Refused = { code: number; message: string; warnings?: string[] };
type Succeeded<T> = T extends unknown ? (Refused extends T ? (unknown extends T ? T : never) : T) : never;
type Answer<N extends Name> = Succeeded<Operations[N]['answer']>;
export type AnswerOf<N extends Name> = Answer<N>;

export interface CallOptions<N extends Name> {
  readonly params?: Operations[N]['params'];
  readonly query?: Operations[N]['query'];
  readonly body?: Operations[N]['body'] | object;
  readonly signal?: AbortSignal;
}

export function pathOf<N extends Name>(name: N, { params, query }: CallOptions<N> = {}): string {
  const path = PATHS[name][1].replace(/\{(\w+)\}/g, (_, key: string) =>
    segmentOf(String((params as Record<string, string> | undefined)?.[key])),
  );
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== '');
  if (given.length === 0) return path;
  return `${path}?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}`;
}

/** Encodes a segment of a path. Rejects `.` and `..`, which browsers resolve even when encoded. */
function segmentOf(text: string): string {
  if (/^\.{0,2}$/.test(text)) throw new ApiError(404, `nothing can have the name “${text}”`);
  return encodeURIComponent(text);
}

/**
 * Calls an operation and returns its JSON answer. Fails with `ApiError`, also if an answer of the registry
 * has a code other than 0.
 */
export async function call<N extends Name>(name: N, options: CallOptions<N> = {}): Promise<Answer<N>> {
  const { body, signal: ends } = options;
  const response = await ask(pathOf(name, options), {
    method: PATHS[name][0],
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    ...(ends === undefined ? {} : { signal: ends }),
  });
  const text = await response.text();
  const value = text === '' ? {} : JSON.parse(text);
  const { code, message } = value as { code?: unknown; message?: unknown };
  if (PATHS[name][1].startsWith('/api/meta/') && code !== 0) throw new ApiError(Number(code), String(message));
  return value as Answer<N>;
}

/** Sends a request. Fails with `ApiError` if the answer is not a success. */
export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await raw(path, init);
  if (response.ok) return response;
  const text = await response.text();
  let message = text || response.statusText;
  try {
    const parsed = JSON.parse(text) as { message?: unknown };
    if (typeof parsed.message === 'string') message = parsed.message;
  } catch {
    // The text is shown as received.
  }
  if (response.status === 401 && session.value) session.value = null;
  throw new ApiError(response.status, message);
}

/** Sends a request and returns any answer. */
export async function raw(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (session.value?.tenant === null && tenant.value !== 'default') headers.set('X-Tenant-Id', tenant.value);
  try {
    return await fetch(path, { ...init, headers, credentials: 'same-origin' });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, 'the service does not answer');
  }
}

export function socketUrl(path: string): string {
  return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${path}`;
}

const MAY = { read: ['viewer', 'user', 'developer'], invoke: ['user', 'developer'], write: ['developer'] } as const;

export function may(access: keyof typeof MAY): boolean {
  const role = session.value?.role;
  return role !== undefined && (MAY[access] as readonly string[]).includes(role);
}

export async function loadSession(): Promise<void> {
  try {
    session.value = (await call('getSession')) as Session;
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    session.value = null;
  }
}

/** Notifies other tabs of the browser, which share the session cookie. */
const otherTabs = new BroadcastChannel('session');

/** Calls `listener` after a login or logout in another tab. Returns a function that unsubscribes. */
export function onSessionElsewhere(listener: () => void): () => void {
  otherTabs.addEventListener('message', listener);
  return () => otherTabs.removeEventListener('message', listener);
}

export async function login(body: { readonly token: string } | { readonly code: string }): Promise<void> {
  session.value = (await call('login', { body })) as Session;
  otherTabs.postMessage('login');
}

export async function logout(): Promise<void> {
  await call('logout');
  session.value = null;
  otherTabs.postMessage('logout');
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
