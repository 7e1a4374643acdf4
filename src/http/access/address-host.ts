import type { IncomingMessage } from 'node:http';
import { type AddressName, parseAddressLabel } from '../../core/address.ts';

/** The public URL that a request addresses by its host name. */
export interface AddressedByHost {
  readonly name: AddressName;
  /** The `Host` header in lower case, with its port. */
  readonly host: string;
  /** Path and query of the request, unchanged. */
  readonly url: string;
  /** A sentence with the reason to refuse the request in any case. null: there is none. */
  readonly problem: string | null;
}

/**
 * The one route for all public URLs with a host name. Every path of such a host belongs to the exposed port.
 */
export const BY_HOST_URL = '/.address';

const addressed = new WeakMap<IncomingMessage, AddressedByHost>();

/** Returns the public URL that a request addresses. undefined: the request is for the service itself. */
export function addressedByHost(request: IncomingMessage): AddressedByHost | undefined {
  return addressed.get(request);
}

/** Recognizes `Host` headers of public URLs below a domain. */
export class AddressHosts {
  readonly #pattern: RegExp;

  constructor(domain: string) {
    this.#pattern = new RegExp(`^([a-z0-9-]{4,63})\\.${domain.toLowerCase().replaceAll('.', '\\.')}(?::\\d{1,5})?$`);
  }

  /**
   * Parses a `Host` header. Returns null if it is a host of the service itself.
   * Nearly every host fails the check for `--` and costs nothing more.
   */
  nameOf(host: string | undefined): AddressName | null {
    if (host === undefined || !host.includes('--')) return null;
    const label = this.#pattern.exec(host.toLowerCase())?.[1];
    return label === undefined ? null : parseAddressLabel(label);
  }

  /**
   * Redirects a request for a public URL to `BY_HOST_URL`, before the routes of the service see it.
   * `giveAddressUrlBack` restores the original URL. Returns false if the request is for another host.
   */
  turn(request: IncomingMessage): boolean {
    const { host = '' } = request.headers;
    const name = this.nameOf(host);
    if (name === null) return false;
    const lower = host.toLowerCase();
    const sent = request.url as string;
    const url = pathOf(sent, lower);
    const problem =
      url === null ? 'the request is for another host than its Host' : hasTwoHosts(request) ? 'it has two hosts' : null;
    addressed.set(request, { name, host: lower, url: url ?? '/', problem });
    request.url = BY_HOST_URL;
    return true;
  }
}

/** Restores the URL of a request. Must be called after the router has chosen the route. */
export function restoreAddressUrl(request: IncomingMessage): void {
  const by = addressed.get(request);
  if (by !== undefined) request.url = by.url;
}

/** Returns path and query. null: an absolute URL names another host than the `Host` header. */
export function pathOf(url: string, host: string): string | null {
  if (url.startsWith('/') || url === '*') return url;
  const absolute = /^https?:\/\/([^/?#]*)(.*)$/is.exec(url);
  if (absolute?.[1]?.toLowerCase() !== host) return null;
  const rest = absolute[2] as string;
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/**
 * Returns true for more than one `Host` header. Node keeps the first, but a proxy may have checked another
 * one.
 */
export function hasTwoHosts({ rawHeaders }: IncomingMessage): boolean {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === 'host') count += 1;
  return count > 1;
}
