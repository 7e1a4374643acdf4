import type { IncomingMessage } from 'node:http';
import { type AddressHosts, restoreAddressUrl } from './address-host.ts';
import { restoreSandboxUrl, type SandboxHosts } from './sandbox-host.ts';

/** Redirects requests for sandboxes, by host name or prefix, before the routes of the service see them. */
export class HostTurns {
  readonly #addresses: AddressHosts;
  readonly #sandboxes: SandboxHosts;

  constructor(addresses: AddressHosts, sandboxes: SandboxHosts) {
    this.#addresses = addresses;
    this.#sandboxes = sandboxes;
  }

  /** Returns true if a `Host` header names no host of the service itself. */
  isOther(host: string | undefined): boolean {
    return this.#addresses.nameOf(host) !== null || this.#sandboxes.labelOf(host) !== null;
  }

  turn(request: IncomingMessage): void {
    if (!this.#addresses.turn(request)) this.#sandboxes.turn(request);
  }
}

/** Restores the URL of a redirected request. Must be called after the router has chosen the route. */
export function restoreUrl(request: IncomingMessage): void {
  restoreAddressUrl(request);
  restoreSandboxUrl(request);
}
