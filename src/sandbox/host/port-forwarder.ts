import type { Duplex } from 'node:stream';

/** A sandbox with its own network. */
export interface PortTarget {
  readonly instanceId: string;
  /** Address of the sandbox on the host; null: the sandbox is reachable only from inside. */
  readonly address: string | null;
  /** Connects to `port` of the sandbox's loopback. */
  dial(port: number, signal: AbortSignal): Promise<Duplex>;
}

/** Counts the connections through all published ports of this process. Each takes two descriptors. */
export const portUse = { connections: 0 };

/** A port of the host that leads into a sandbox. */
export interface PortForwarder {
  readonly hostPort: number;
  /** Frees the port and ends its connections. */
  close(): void;
}
