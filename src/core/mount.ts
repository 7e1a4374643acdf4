/** A host directory or file that stands inside the sandbox. */
export interface MountSpec {
  /** Absolute host path. */
  readonly source: string;
  /** Path inside the sandbox; not validated by the specification. */
  readonly target: string;
  readonly readonly: boolean;
}
