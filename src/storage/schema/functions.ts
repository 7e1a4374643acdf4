/** Record of `functions`: one version of a function. */
export interface FunctionTable {
  tenant: string;
  name: string;
  /** `$latest`, or the number of the published version. */
  version: string;
  revision_id: string;
  /** Newest change first is `change_seq` descending; unique in a tenant. */
  change_seq: number;
  /** Time of the last publish without a number; 0 = never. Used in the record `$latest` only. */
  default_published_at_ms: number;
  /** Expected path of the code on this host; `''` when the query omits it. */
  host_code_path: string;
  /** The secret of the object store that has the code. */
  code_token: string;
  /** The record in the form of the answer: JSON text that ends with an empty `status` member. */
  record: string;
}

/**
 * Record of `function_totals`: the number of versions of a tenant with one version number. A page's total
 * therefore needs no count. The record `$latest` counts functions, since each function has one `$latest`; its
 * `last_change` is the newest `change_seq`. The record `''` counts all published versions.
 */
export interface FunctionTotalTable {
  tenant: string;
  version: string;
  total: number;
  /** 0 except in the record `$latest`. */
  last_change: number;
}
