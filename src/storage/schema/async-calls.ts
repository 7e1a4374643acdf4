export type AsyncCallStatus = 'queued' | 'processing' | 'completed' | 'failed';

/** Record of `async_calls`. */
export interface AsyncCallTable {
  id: string;
  tenant: string;
  urn: string;
  status: AsyncCallStatus;
  /** JSON: the request without its body; `''` after the call has ended. */
  request: string;
  body: Uint8Array;
  /** `''`: none. */
  webhook_url: string;
  /** JSON text of the handler's value. */
  result: string | null;
  /** JSON of `{code, message}`. */
  error: string | null;
  created_at_ms: number;
  completed_at_ms: number | null;
  /** The shard of the function. The holder of the lease with this name runs the call. */
  shard: string;
  /** The epoch of that lease when the call was claimed; 0 before. */
  lease_epoch: number;
}
