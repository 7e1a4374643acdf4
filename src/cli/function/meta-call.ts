import { META_CODES } from '../../core/codes.ts';
import type { Client } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';

export type MetaAnswer = Readonly<Record<string, unknown>>;

/**
 * Calls the meta_service. Its failures also have the HTTP status 200; the message of the body is then the
 * error.
 */
export async function callMeta(client: Client, method: string, path: string, body?: unknown): Promise<MetaAnswer> {
  const answer = await askMeta(client, method, path, body);
  if (answer.code === 0) return answer;
  const failure = metaFailure(answer);
  const advice = ADVICE[Number(answer.code)] ?? answer.advice ?? LISTS[Number(answer.code)];
  throw typeof advice !== 'string' ? failure : new CliError(`${failure.message}\n${advice}`, failure.exitCode);
}

/**
 * Calls the meta_service like `callMeta`, but returns a failure, for callers that need more than its message.
 */
export function askMeta(client: Client, method: string, path: string, body?: unknown): Promise<MetaAnswer> {
  return client.json(method, `/serverless/v1${path}`, {
    entry: 'meta',
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

/** Advice with commands, which replaces the service's advice with requests. */
const ADVICE: Readonly<Record<number, string>> = {
  [META_CODES.exists.code]:
    'It can be changed with "rookery function update", or removed with "rookery function delete".',
  [META_CODES.duplicateVersion.code]:
    'A published version never changes: publish under another name (--as v2), or delete that version first (rookery function delete NAME:VERSION).',
  [META_CODES.staleRevision.code]:
    'Another client changed the function: read it (rookery function get NAME), then repeat the command without --revision, or with the current one.',
};

/** Advice for errors to which the service adds none. */
const LISTS: Readonly<Record<number, string>> = {
  [META_CODES.notFound.code]: '"rookery function list" shows those that exist.',
  [META_CODES.poolNotFound.code]: '"rookery pool list" shows those that exist.',
};

export function metaFailure({ message, code }: MetaAnswer): CliError {
  return new CliError(`${String(message)} (code ${String(code)})`);
}

/**
 * Runs `act` for each item in sequence. A refusal does not stop the others; all failures are reported
 * together. An unreachable service, or one that rejects the caller, stops the loop.
 */
export async function forEach<T>(items: readonly T[], act: (item: T) => Promise<void>): Promise<void> {
  const failures: CliError[] = [];
  for (const item of items) {
    try {
      await act(item);
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      failures.push(error);
      if (error.exitCode !== EXIT.failure) break;
    }
  }
  const last = failures.at(-1);
  if (last === undefined) return;
  const parts = failures.map(({ message }) => message.split('\n'));
  // The advice is the same for each, so that it follows once.
  const advice = new Set(parts.flatMap(([, ...next]) => next));
  throw new CliError([...parts.map(([sentence]) => sentence), ...advice].join('\n'), last.exitCode);
}

/** Returns a path that names a function, with the query parameters that are set. */
export function metaPath(path: string, query: Readonly<Record<string, string | undefined>> = {}): string {
  const set = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return set.length === 0 ? path : `${path}?${new URLSearchParams(set)}`;
}
