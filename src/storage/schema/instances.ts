import type { Generated } from 'kysely';
import type { InstanceStatus, OwnerKind, SandboxType } from '../../core/instance.ts';

/**
 * Record of `instances`: everything that has a sandbox, for all kinds of owners. The record is written before
 * a sandbox's id is published, so a sandbox without a record is an orphan. JSON columns hold text.
 */
export interface InstanceTable {
  id: string;
  owner_kind: OwnerKind;
  /** Key of the owner: an agent's id, a function version's URN, a job's number, or a build's key. */
  owner_key: string;
  tenant: string;
  /** `''` without a name; unique in tenant and namespace among agents. */
  namespace: string;
  name: string;
  status: InstanceStatus;
  status_reason: string;
  load_error: string;
  /** Counts the sandboxes of the instance, from 1. A change that names an earlier epoch has no effect. */
  epoch: number;
  node_id: string;
  sandbox_type: SandboxType;
  cpu_millis: number;
  memory_mb: number;
  /** Most calls at once; 0: the instance takes no calls. */
  concurrency: number;
  max_call_ms: number;
  /** Data of the owner about the instance. */
  spec: string;
  /** `SandboxFacts` */
  sandbox: string;
  /** `SandboxHandle` of the current sandbox; null before it exists. */
  handle: string | null;
  /** The secret that opens connections to the runtime. */
  secret: string;
  created_at_ms: number;
  started_at_ms: number;
  idempotency_key: string | null;
  /** SHA-256 of the create request that had the key. */
  request_hash: string | null;
  /** Consecutive restarts by the restart policy. */
  restarts_in_row: Generated<number>;
  /** Time of the next restart by the restart policy; 0: none. */
  restart_at_ms: Generated<number>;
}
