import { META_CODES } from '../core/codes.ts';
import type { Client } from './client.ts';
import { CliError, EXIT } from './exit.ts';

export type MetaAnswer = Readonly<Record<string, unknown>>;

/** One call of the meta_service, whose failures come with status 200 too: then its message is the error. */
export async function callMeta(client: Client, method: string, path: string, body?: unknown): Promise<MetaAnswer> {
  const answer = await askMeta(client, method, path, body);
  if (answer.code === 0) return answer;
  const failure = metaFailure(answer);
  const advice = ADVICE[Number(answer.code)] ?? answer.advice;
  throw typeof advice !== 'string' ? failure : new CliError(`${failure.message}\n${advice}`, failure.exitCode);
}

/** As `callMeta`, for whoever has to read more of a failure than its message. */
export function askMeta(client: Client, method: string, path: string, body?: unknown): Promise<MetaAnswer> {
  return client.json(method, `/serverless/v1${path}`, {
    entry: 'meta',
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

/** Advice in commands, where the service gives it in requests. */
const ADVICE: Readonly<Record<number, string>> = {
  [META_CODES.exists.code]:
    'It can be changed with "rookery function update", or removed with "rookery function delete".',
  [META_CODES.duplicateVersion.code]:
    'A published version never changes: publish under another name (--as v2), or delete that version first (rookery function delete NAME:VERSION).',
  [META_CODES.staleRevision.code]:
    'Somebody changed the function meanwhile: look at it (rookery function get NAME), then say it again without --revision, or with the one that it has now.',
};

export function metaFailure({ message, code }: MetaAnswer): CliError {
  return new CliError(`${String(message)} (code ${String(code)})`);
}

/**
 * Does it for each, one after another: what the service refuses of one does not keep the others, and all failures are reported together.
 * A service that cannot be reached, or does not know the caller, ends it.
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
  if (last !== undefined) throw new CliError(failures.map(failure => failure.message).join('\n'), last.exitCode);
}

/** A path that names a function, with a query of those parameters that are set. */
export function metaPath(path: string, query: Readonly<Record<string, string | undefined>> = {}): string {
  const set = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return set.length === 0 ? path : `${path}?${new URLSearchParams(set)}`;
}
