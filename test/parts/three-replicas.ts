import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import type { Served } from '../../scripts/served.ts';
import { startPostgres, type TestPostgres } from './postgres.ts';
import { ServedReplicas } from './served-replicas.ts';

const WAIT = { timeout: 60_000, interval: 100 };

/** Three replicas of the tests of a suite. */
export interface ThreeReplicas {
  readonly all: readonly [Served, Served, Served];
  /** A directory for code, which is removed after the tests. */
  readonly directory: string;
}

/**
 * Starts three replicas before the tests of a suite, each of which has found the others, and removes them
 * after the tests. `prefix` begins the name of the directory.
 */
export function threeReplicas(prefix: string): ThreeReplicas {
  let postgres: TestPostgres;
  let replicas: ServedReplicas;
  let directory: string;
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), prefix));
    postgres = await startPostgres();
    replicas = await ServedReplicas.start(await postgres.database(), 3);
    for (const { frontendUrl } of replicas.all) {
      const nodes = async () =>
        ((await (await fetch(`${frontendUrl}/api/cluster`)).json()) as { nodes: unknown }).nodes;
      await vi.waitFor(async () => expect(await nodes()).toHaveLength(3), WAIT);
    }
  }, 180_000);
  afterAll(async () => {
    await replicas?.[Symbol.asyncDispose]();
    await postgres?.close();
    rmSync(directory, { recursive: true, force: true });
  }, 120_000);
  return {
    get directory() {
      return directory;
    },
    get all() {
      return replicas.all as ThreeReplicas['all'];
    },
  };
}
