import type { Duplex } from 'node:stream';
import type { PortMapping } from '../../core/instance.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxHandle, SandboxSpec } from '../driver.ts';
import { readHandle } from './handle.ts';
import type { PortTarget } from './port-forwarder.ts';
import { PublishedPorts } from './ports.ts';

/** What the ports of a sandbox need of its driver. */
export interface PortOwner {
  /** A connection to `port` of the sandbox's loopback. */
  dial(handle: SandboxHandle, port: number, signal: AbortSignal): Promise<Duplex>;
  /** Resolves when the sandbox has ended. */
  ended(handle: SandboxHandle): Promise<unknown>;
}

/** The published ports of sandboxes, as their handles tell them: open from the start to the end of each, under one server after another. */
export class SandboxPorts {
  readonly #owner: PortOwner;
  readonly #published: PublishedPorts;

  constructor(owner: PortOwner, logger: Logger) {
    this.#owner = owner;
    this.#published = new PublishedPorts(logger);
  }

  /** Opens those of a sandbox that has just started; the handle has them then. Fails with `unavailable`, and none is open. */
  async publish(
    handle: SandboxHandle,
    { ports }: SandboxSpec,
  ): Promise<{ handle: SandboxHandle; portMappings: readonly PortMapping[] }> {
    const target = this.#targetOf(handle);
    // From inside only connections can be made.
    const open =
      target === null || target.address !== null ? ports : ports.filter(({ protocol }) => protocol === 'tcp');
    if (target === null || open.length === 0) return { handle, portMappings: [] };
    const portMappings = await this.#published.open(target, open);
    this.#published.closeAfter(handle.instanceId, this.#owner.ended(handle));
    return { handle: { ...handle, data: { ...handle.data, portMappings } }, portMappings };
  }

  /** Opens those of a running sandbox that an earlier server published. */
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
