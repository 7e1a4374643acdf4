/** Facts that a zygote or a supervisor shim has detected about its machine. */
export interface HostFacts {
  readonly isolation: readonly string[];
  readonly degraded: readonly string[];
  readonly privileged: boolean;
  /** The reason sandboxes have no own network; null when they have one, absent when no attempt was made. */
  readonly networkMissing?: string | null;
}
