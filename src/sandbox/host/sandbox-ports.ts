import type { Duplex } from 'node:stream';
import type { PortMapping } from '../../core/instance.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxHandle, SandboxSpec } from '../driver.ts';
import { readHandle } from './handle.ts';
import type { PortTarget } from './port-forwarder.ts';
import { PublishedPorts } from './ports.ts';

/** The driver's functions that the ports of a sandbox need. */
export interface PortOwner {
  /** Connects to `port` of the sandbox's loopback. */
  dial(handle: SandboxHandle, port: number, signal: AbortSignal): Promise<Duplex>;
  /** Resolves when the sandbox has ended. */
  ended(handle: SandboxHandle): Promise<unknown>;
}

/**
 * The published ports of sandboxes, as stored in their handles.
 * The ports are open from the start to the end of each sandbox, also after a restart of the service.
 */
export class SandboxPorts {
  readonly #owner: PortOwner;
  readonly #published: PublishedPorts;

  constructor(owner: PortOwner, logger: Logger) {
    this.#owner = owner;
    this.#published = new PublishedPorts(logger);
  }

  /**
   * Opens the ports of a sandbox that has just started, and adds them to its handle.
   * Fails with `unavailable`, and leaves none open then.
   */
  async publish(
    handle: SandboxHandle,
    { ports }: SandboxSpec,
  ): Promise<{ handle: SandboxHandle; portMappings: readonly PortMapping[] }> {
    const target = this.#targetOf(handle);
    // A sandbox without an address is reachable from inside only, by TCP connections.
    const open =
      target === null || target.address !== null ? ports : ports.filter(({ protocol }) => protocol === 'tcp');
    if (target === null || open.length === 0) return { handle, portMappings: [] };
    const portMappings = await this.#published.open(target, open);
    this.#published.closeAfter(handle.instanceId, this.#owner.ended(handle));
    return { handle: { ...handle, data: { ...handle.data, portMappings } }, portMappings };
  }

  /** Reopens the ports of an adopted, running sandbox. */
  async reopen(handle: SandboxHandle): Promise<void> {
    const { portMappings } = readHandle(handle);
    if (portMappings.length === 0 || this.#published.has(handle.instanceId)) return;
    const target = this.#targetOf(handle);
    if (target === null) return;
    await this.#published.reopen(target, portMappings);
    this.#published.closeAfter(handle.instanceId, this.#owner.ended(handle));
  }

  close(instanceId: string): void {
    this.#published.close(instanceId);
  }

  closeAll(): void {
    this.#published.closeAll();
  }

  #targetOf(handle: SandboxHandle): PortTarget | null {
    const { address, hasOwnNetwork } = readHandle(handle);
    if (!hasOwnNetwork) return null;
    const { instanceId } = handle;
    return { instanceId, address, dial: (port, signal) => this.#owner.dial(handle, port, signal) };
  }
}
