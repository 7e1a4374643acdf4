/** Record of `code_packages`: a tenant has uploaded this content. */
export interface CodePackageTable {
  tenant: string;
  sha256: string;
  /** The location of the bytes: `disk` of the only node, `store` (the object store), or `database`. */
  place: 'disk' | 'store' | 'database';
  /** Unique per upload, so that a removal cannot delete a newer upload. */
  blob: string;
  bytes: number;
  /** Size of the unpacked files and directories on a disk; 0 when an earlier version stored the package. */
  unpacked_bytes: number;
  created_at_ms: number;
  /** The time of the last upload or the last new use. */
  used_at_ms: number;
}

/** Record of `code_package_parts`: bytes of a package that is stored in the database. */
export interface CodePackagePartTable {
  blob: string;
  part: number;
  at_ms: number;
  content: Uint8Array;
}
