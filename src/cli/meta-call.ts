import type { Client } from './client.ts';
import { CliError } from './exit.ts';

export type MetaAnswer = Readonly<Record<string, unknown>>;

/** One call of the meta_service, whose failures come with status 200 too: then its message is the error. */
export async function callMeta(client: Client, method: string, path: string, body?: unknown): Promise<MetaAnswer> {
  const answer = await client.json(method, `/serverless/v1${path}`, {
    entry: 'meta',
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (answer.code === 0) return answer;
  throw new CliError(`${String(answer.message)} (code ${String(answer.code)})`);
}

/** A path that names a function, with a query of those parameters that are set. */
export function metaPath(path: string, query: Readonly<Record<string, string | undefined>> = {}): string {
  const set = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return set.length === 0 ? path : `${path}?${new URLSearchParams(set)}`;
}
