/**
 * Record of `nodes`: one for each replica that has ever joined. A node is alive until `expires_at_ms`, by the
 * clock of the database.
 */
export interface NodeTable {
  id: string;
  /** Grows by 1 with each join. The node no longer owns the leases of its earlier epochs. */
  epoch: number;
  /** `host:port` at which other replicas reach the node; empty: unreachable. */
  advertise: string;
  /** Comma-separated names. */
  roles: string;
  version: string;
  joined_at_ms: number;
  expires_at_ms: number;
}
