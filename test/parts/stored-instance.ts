import { randomUUID } from 'node:crypto';
import { NO_SANDBOX } from '../../src/core/instance.ts';
import type { StoredInstance } from '../../src/storage/queries/instances.ts';

/** Returns an instance as an owner stores it, with the changes of the test. */
export function storedInstance(changes: Partial<StoredInstance> = {}): StoredInstance {
  const id = changes.id ?? randomUUID();
  return {
    id,
    owner: { kind: 'agent', key: id },
    tenant: 'default',
    status: 'CREATING',
    statusReason: '',
    loadError: '',
    epoch: 1,
    nodeId: 'node',
    sandboxType: 'fake',
    cpuMillis: 1000,
    memoryMb: 128,
    concurrency: 1,
    maxCallMs: 1000,
    spec: '{}',
    sandbox: NO_SANDBOX,
    handle: null,
    secret: 'secret',
    createdAtMs: 1_700_000_000_000,
    startedAtMs: 0,
    restartsInRow: 0,
    restartAtMs: 0,
    ttlMs: 0,
    expiresAtMs: 0,
    pausedAtMs: 0,
    wakes: 0,
    ...changes,
  };
}
