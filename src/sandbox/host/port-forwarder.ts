import type { Duplex } from 'node:stream';

/** A sandbox with a network of its own. */
export interface PortTarget {
  readonly instanceId: string;
  /** null: it is reached from inside only. */
  readonly address: string | null;
  /** A connection to `port` of its loopback. */
  dial(port: number, signal: AbortSignal): Promise<Duplex>;
}

/** Counts what goes through all published ports of this process: each is two descriptors. */
export const portUse = { connections: 0 };

/** One port of the host that leads into a sandbox. */
export interface PortForwarder {
  readonly hostPort: number;
  /** It is free, and what went through it has ended. */
  close(): void;
}
