import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';
import type { Rookery } from './rookery.ts';

const CODE = fileURLToPath(new URL('agent', import.meta.url));

export interface FunctionOptions {
  readonly handler?: string;
  readonly concurrentNum?: number;
  readonly maxInstance?: number;
  readonly minInstance?: number;
  readonly [field: string]: unknown;
}

/** Registers a function of the bench's code. Returns the path that calls it. */
export async function registerFunction(
  rookery: Rookery,
  python: string,
  name: string,
  options: FunctionOptions = {},
): Promise<string> {
  const answer = await send(rookery.served.metaUrl, '/serverless/v1/functions', {
    name: `0@bench@${name}`,
    kind: 'faas',
    runtime: `python${python}`,
    cpu: 1000,
    memory: 256,
    handler: 'handler.handle',
    storageType: 'local',
    codePath: CODE,
    ...options,
  });
  const { code, functionVersionUrn, message } = JSON.parse(answer) as {
    code: number;
    functionVersionUrn?: string;
    message: string;
  };
  if (code !== 0) throw new Error(`${name} could not be registered: ${message}`);
  return `/serverless/v1/functions/${functionVersionUrn}/invocations`;
}

/** Returns the number of ready instances of a function. */
export async function readyInstances(rookery: Rookery, path: string): Promise<number> {
  const response = await fetch(rookery.url + path.replace(/invocations$/, 'instances'));
  const { instances } = (await response.json()) as { instances: readonly { status: string }[] };
  return instances.filter(({ status }) => status === 'ready').length;
}

/** Sends one POST on a new connection. Returns the body; throws if the status is not 200. */
export async function send(base: string, path: string, body: unknown): Promise<string> {
  const pool = new Pool(base);
  try {
    const response = await pool.request({
      method: 'POST',
      path,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const text = await response.body.text();
    if (response.statusCode !== 200) throw new Error(`POST ${path} answered ${response.statusCode}: ${text}`);
    return text;
  } finally {
    await pool.close();
  }
}
