import type { IncomingMessage } from 'node:http';
import { type AddressName, parseAddressLabel } from '../core/address.ts';

/** What a request asks for by its host name. */
export interface AddressedByHost {
  readonly name: AddressName;
  /** As it was sent, in lower case: with its port. */
  readonly host: string;
  /** Path and query as they were sent. */
  readonly url: string;
  /** Why it cannot be answered whatever is there, a sentence; null: it can. */
  readonly problem: string | null;
}

/** The one route of all addresses with a host name of their own: whatever path such a request has belongs to what is exposed. */
export const BY_HOST_URL = '/.address';

const addressed = new WeakMap<IncomingMessage, AddressedByHost>();

/** What a request asks for by its host name; undefined: it is one for the service itself. */
export function addressedByHost(request: IncomingMessage): AddressedByHost | undefined {
  return addressed.get(request);
}

/** Whether `host`, as a `Host` says it, has the form of an address below a domain. */
export class AddressHosts {
  readonly #pattern: RegExp;

  constructor(domain: string) {
    this.#pattern = new RegExp(`^([a-z0-9-]{4,63})\\.${domain.toLowerCase().replaceAll('.', '\\.')}(?::\\d{1,5})?$`);
  }

  /** What a `Host` asks for; null: it is one of the service itself. Costs one look for `--` nearly always. */
  nameOf(host: string | undefined): AddressName | null {
    if (host === undefined || !host.includes('--')) return null;
    const label = this.#pattern.exec(host.toLowerCase())?.[1];
    return label === undefined ? null : parseAddressLabel(label);
  }

  /**
   * Turns a request for an address away from the routes of the service, before any of them sees it: it asks for `BY_HOST_URL` then, until
   * `giveUrlBack`.
   */
  turn(request: IncomingMessage): void {
    const { host = '' } = request.headers;
    const name = this.nameOf(host);
    if (name === null) return;
    const lower = host.toLowerCase();
    const sent = request.url as string;
    const url = pathOf(sent, lower);
    const problem =
      url === null ? 'the request is for another host than its Host' : hasTwoHosts(request) ? 'it has two hosts' : null;
    addressed.set(request, { name, host: lower, url: url ?? '/', problem });
    request.url = BY_HOST_URL;
  }
}

/** To be called once a request has been routed. */
export function giveUrlBack(request: IncomingMessage): void {
  const by = addressed.get(request);
  if (by !== undefined) request.url = by.url;
}

/** Null: it names another host than the `Host`. */
function pathOf(url: string, host: string): string | null {
  if (url.startsWith('/') || url === '*') return url;
  const absolute = /^https?:\/\/([^/?#]*)(.*)$/is.exec(url);
  if (absolute?.[1]?.toLowerCase() !== host) return null;
  const rest = absolute[2] as string;
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** Node keeps the first, and a proxy in front may have looked at another. */
function hasTwoHosts({ rawHeaders }: IncomingMessage): boolean {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === 'host') count += 1;
  return count > 1;
}
