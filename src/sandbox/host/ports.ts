import type { Duplex } from 'node:stream';
import { messageOf, unavailable } from '../../core/error.ts';
import type { PortMapping, PortSpec } from '../../core/instance.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxHandle, SandboxSpec } from '../driver.ts';
import { readHandle } from './handle.ts';
import { forwardTcp, forwardUdp, type PortForwarder, type PortTarget } from './port-forwarders.ts';

const HOST_IP = '127.0.0.1';
/** Interval of retries for an adopted sandbox's host port that another process holds. */
const RETRY_MS = 5_000;
/** Maximum number of instances whose last host ports are remembered, for a restart. */
const MAX_REMEMBERED = 1000;

interface Published {
  readonly forwarders: Set<PortForwarder>;
  /** Retry timers of mappings that wait for their host port. */
  readonly retries: Set<NodeJS.Timeout>;
}

/** Host ports that lead into sandboxes, open as long as both this process and the sandbox are alive. */
export class PublishedPorts {
  readonly #logger: Logger;
  readonly #published = new Map<string, Published>();
  readonly #remembered = new Map<string, readonly PortMapping[]>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /**
   * Opens one free port of the host for each of `ports`.
   * Reuses the ports from before a restart of the instance when they are free. Fails with `unavailable`, and
   * leaves none open then.
   */
  async open(target: PortTarget, ports: readonly PortSpec[]): Promise<readonly PortMapping[]> {
    const { instanceId } = target;
    const before = this.#remembered.get(instanceId) ?? [];
    const published = this.#register(instanceId);
    try {
      const mappings: PortMapping[] = [];
      for (const { protocol, port } of ports) {
        const had = before.find(one => one.protocol === protocol && one.containerPort === port)?.hostPort ?? 0;
        const forwarder = await forward(target, protocol, port, had).catch(error => {
          if (had === 0) throw error;
          return forward(target, protocol, port, 0);
        });
        if (!this.#addForwarder(published, instanceId, forwarder)) throw unavailable('the sandbox has ended');
        mappings.push({ protocol, containerPort: port, hostIp: HOST_IP, hostPort: forwarder.hostPort });
      }
      this.#remember(instanceId, mappings);
      return mappings;
    } catch (error) {
      this.close(instanceId);
      throw unavailable(`a port of the host cannot be opened: ${messageOf(error)}`, { cause: error });
    }
  }

  has(instanceId: string): boolean {
    return this.#published.has(instanceId);
  }

  /** Reopens the same ports for an adopted sandbox. Retries a port that is in use until it is free. */
  async reopen(target: PortTarget, mappings: readonly PortMapping[]): Promise<void> {
    if (mappings.length === 0 || this.#published.has(target.instanceId)) return;
    const published = this.#register(target.instanceId);
    this.#remember(target.instanceId, mappings);
    await Promise.all(mappings.map(mapping => this.#tryReopen(published, target, mapping, true)));
  }

  /** Closes all ports of the instance. */
  close(instanceId: string): void {
    const published = this.#published.get(instanceId);
    if (published === undefined) return;
    this.#published.delete(instanceId);
    for (const timer of published.retries) clearTimeout(timer);
    for (const forwarder of published.forwarders) forwarder.close();
  }

  /**
   * Closes the instance's current ports when `ended` resolves. When `ended` rejects they stay open until
   * `close`.
   */
  closeAfter(instanceId: string, ended: Promise<unknown>): void {
    const published = this.#published.get(instanceId);
    const close = () => {
      if (this.#published.get(instanceId) === published) this.close(instanceId);
    };
    ended.then(close, () => undefined);
  }

  closeAll(): void {
    for (const instanceId of [...this.#published.keys()]) this.close(instanceId);
    this.#remembered.clear();
  }

  #register(instanceId: string): Published {
    this.close(instanceId);
    const published = { forwarders: new Set<PortForwarder>(), retries: new Set<NodeJS.Timeout>() };
    this.#published.set(instanceId, published);
    return published;
  }

  /** Adds a forwarder. Returns false, and closes it, when the instance's ports were closed meanwhile. */
  #addForwarder(published: Published, instanceId: string, forwarder: PortForwarder): boolean {
    if (this.#published.get(instanceId) !== published) {
      forwarder.close();
      return false;
    }
    published.forwarders.add(forwarder);
    return true;
  }

  async #tryReopen(published: Published, target: PortTarget, mapping: PortMapping, isFirst: boolean): Promise<void> {
    const { instanceId } = target;
    try {
      const forwarder = await forward(target, mapping.protocol, mapping.containerPort, mapping.hostPort);
      this.#addForwarder(published, instanceId, forwarder);
    } catch (error) {
      if (this.#published.get(instanceId) !== published) return;
      const { protocol, hostPort } = mapping;
      if (isFirst) {
        this.#logger.warn(
          { instanceId, protocol, hostPort, error: messageOf(error) },
          'published port is in use by another program; retrying',
        );
      }
      const timer = setTimeout(() => {
        published.retries.delete(timer);
        void this.#tryReopen(published, target, mapping, false);
      }, RETRY_MS);
      timer.unref();
      published.retries.add(timer);
    }
  }

  #remember(instanceId: string, mappings: readonly PortMapping[]): void {
    this.#remembered.delete(instanceId);
    this.#remembered.set(instanceId, mappings);
    const [oldest] = this.#remembered.keys();
    if (this.#remembered.size > MAX_REMEMBERED && oldest !== undefined) this.#remembered.delete(oldest);
  }
}

async function forward(
  target: PortTarget,
  protocol: 'tcp' | 'udp',
  port: number,
  hostPort: number,
): Promise<PortForwarder> {
  if (protocol === 'tcp') return await forwardTcp(target, port, hostPort);
  if (target.address === null) throw unavailable('a sandbox without an address on the host has no UDP ports there');
  return await forwardUdp(target.address, port, hostPort);
}

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
