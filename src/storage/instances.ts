import type { Instance, InstanceStatus } from '../core/instance.ts';
import type { Database } from './database.ts';

/** Row of `instances`. JSON columns hold text. */
export interface InstanceTable {
  id: string;
  tenant: string;
  namespace: string;
  name: string;
  status: InstanceStatus;
  status_reason: string;
  load_error: string;
  restarts: number;
  node_id: string;
  /** `InstanceSpec` */
  spec: string;
  /** `SandboxFacts` */
  sandbox: string;
  /** `SandboxHandle` of the sandbox that it has, null before there is one. Only the reconciler and drivers read it. */
  handle: string | null;
  /** Opens connections to its runtime. */
  secret: string;
  created_at_ms: number;
  started_at_ms: number;
  idempotency_key: string | null;
  /** SHA-256 of the create request that came with the key. */
  request_hash: string | null;
}

export type { Database, Instance };
