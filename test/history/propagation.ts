import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from './client.ts';
import type { Places } from './clients.ts';

const BETWEEN_MS = 5;
const WATCHED_MS = 400;

export interface Propagation {
  readonly updates: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/**
 * Measures how long replicas answer with the old revision after an update was acknowledged. Each value is the
 * time until the last such call was sent, or 0 without one. Calls go to replicas other than the one that took
 * the update.
 */
export async function measurePropagation(client: Client, places: Places, updates: number): Promise<Propagation> {
  const name = '0@history@updated';
  const registered = await client.ask('POST', '/serverless/v1/functions', {
    meta: true,
    body: {
      name,
      kind: 'faas',
      runtime: places.runtime,
      cpu: 100,
      memory: 128,
      handler: 'history.generation',
      storageType: 'local',
      codePath: places.codeDir,
      timeout: 30,
      maxInstance: 1,
      concurrentNum: 16,
      environment: { GENERATION: '0' },
    },
  });
  let record = registered?.body.function as { functionVersionUrn: string; revisionId: string };
  const urn = record.functionVersionUrn;
  const path = `/serverless/v1/functions/${encodeURIComponent(name)}`;
  const call = (avoid?: string) =>
    client.ask('POST', `/serverless/v1/functions/${urn}/invocations`, { body: {}, avoid });
  await call();
  const times: number[] = [];
  for (let generation = 1; generation <= updates; generation++) {
    const body = { revisionId: record.revisionId, environment: { GENERATION: String(generation) } };
    const updated = await client.ask('PUT', path, { meta: true, body });
    const ackedMs = performance.now();
    if (updated?.body.code !== 0) throw new Error(`an update without harm failed: ${JSON.stringify(updated)}`);
    record = { ...record, ...(updated.body.function as { revisionId: string }) };
    let lastOldMs = 0;
    const calls: Promise<void>[] = [];
    while (performance.now() < ackedMs + WATCHED_MS) {
      const sentMs = performance.now();
      const answered = call(updated.replica).then(answer => {
        if (Number(answer?.body) < generation) lastOldMs = Math.max(lastOldMs, sentMs - ackedMs);
      });
      calls.push(answered);
      await delay(BETWEEN_MS);
    }
    await Promise.all(calls);
    times.push(lastOldMs);
  }
  await client.ask('DELETE', path, { meta: true });
  times.sort((a, b) => a - b);
  const at = (part: number) => Math.round(times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0);
  return { updates, p50Ms: at(0.5), p99Ms: at(0.99) };
}
