/** A host directory or file that appears inside the sandbox. */
export interface MountSpec {
  /** Absolute host path. */
  readonly source: string;
  /** Path inside the sandbox. The specification does not validate it. */
  readonly target: string;
  readonly readonly: boolean;
}
