/**
 * Record of `job_packages`: a node or the object store has this package. Written only with several nodes or
 * with an object store.
 */
export interface JobPackageTable {
  tenant: string;
  name: string;
  /** `''`: the object store, under `object`. */
  node_id: string;
  /** The process of that node that wrote the record last. */
  node_epoch: number;
  /**
   * The key of the object; `''` for a node. Unique per upload, so that a removal cannot delete a newer
   * upload.
   */
  object: string;
  bytes: number;
  sha256: string;
  /** The time of the last upload or use, on any node. */
  used_at_ms: number;
}
