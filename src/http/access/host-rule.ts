import type { IncomingHttpHeaders } from 'node:http';
import type { RequestHead } from '../request.ts';

export interface HostRuleOptions {
  /** The address that the listener is bound to. */
  readonly boundHost: string;
  /** Further accepted names (`rookery.example.com`, or with a port). */
  readonly allowedHosts: readonly string[];
}

/** Decides which host names the server accepts, and which pages may send changing requests. */
export interface HostRule {
  /**
   * Returns true if the server accepts the name. `localAddress` is the address at which the connection
   * arrived.
   */
  allowsHost(host: string | undefined, localAddress: string | undefined): boolean;
  /**
   * Returns true if a browser reports a page of another origin (scheme, host and port) as the sender.
   * Returns false if `allowedHosts` names the origin of that page. Applies to unsafe methods and to WebSocket
   * upgrades.
   */
  isCrossSite(headers: IncomingHttpHeaders): boolean;
  /**
   * Returns true if a browser reports a page of another origin as the sender.
   * Returns false for a link that a user follows on such a page.
   * Applies to requests that reach a sandbox, with any method.
   */
  isFromElsewhere(request: Pick<RequestHead, 'method' | 'headers'>): boolean;
}

const ORIGIN = /^https?:\/\/([^/?#@]+)$/;
const WILDCARD_ADDRESSES = new Set(['0.0.0.0', '::', '']);
/** Maximum number of accepted names to remember. Clients choose the names. */
const MAX_REMEMBERED_HOSTS = 64;

export function createHostRule(options: HostRuleOptions): HostRule {
  const allowed = new Set(options.allowedHosts.map(name => name.toLowerCase()));
  const bound = options.boundHost.toLowerCase();
  const anyAddress = WILDCARD_ADDRESSES.has(bound);
  const remembered = new Set<string>();

  const isNamed = (host: string) => allowed.has(host) || allowed.has(hostnameOf(host));
  /**
   * Returns true if `allowedHosts` names the host of an origin.
   * A name without a port covers the default ports only, because another program may listen on any other
   * port. It also covers the port of the `Host` header, for a proxy that speaks TLS in front of the service.
   */
  const isNamedOrigin = (origin: string, host: string) => {
    const from = ORIGIN.exec(origin.toLowerCase())?.[1];
    return from !== undefined && (allowed.has(from) || (from === host && allowed.has(hostnameOf(host))));
  };

  const rule: HostRule = {
    allowsHost(sent, localAddress) {
      if (sent === undefined) return false;
      if (remembered.has(sent)) return true;
      const host = sent.toLowerCase();
      const name = hostnameOf(host);
      if (isLoopbackName(name) || name === bound || isNamed(host)) {
        if (remembered.size < MAX_REMEMBERED_HOSTS) remembered.add(sent);
        return true;
      }
      // When the listener is bound to every address, the address at which the connection arrived is accepted.
      return anyAddress && localAddress !== undefined && name === localAddress.replace(/^::ffff:/, '');
    },

    isCrossSite(headers) {
      const { origin } = headers;
      const site = headers['sec-fetch-site'];
      // Without both headers, the client is no browser, or a browser that does not report the origin.
      if (origin === undefined && site === undefined) return false;
      const isListed = origin !== undefined && isNamedOrigin(origin, (headers.host ?? '').toLowerCase());
      if (site !== undefined && site !== 'same-origin' && site !== 'none') {
        // Another host of a site that `allowedHosts` names may be a page of the service. No other page on
        // this machine is.
        if (site !== 'same-site' || !isListed) return true;
      }
      return origin !== undefined && !isListed && origin.toLowerCase() !== originOf(headers);
    },

    isFromElsewhere: request => rule.isCrossSite(request.headers) && !followsLink(request),
  };
  return rule;
}

/** Returns true if the origins would be the same with the header `X-Forwarded-Proto: https`. */
export function lacksForwardedProto(headers: IncomingHttpHeaders): boolean {
  const { origin, host = '' } = headers;
  if (headers['x-forwarded-proto'] !== undefined) return false;
  return origin?.toLowerCase() === `https://${withoutDefaultPort(host.toLowerCase(), 'https')}`;
}

/**
 * Returns true if a browser navigates to the URL as a whole page.
 * Returns false for an upgrade, which may change state with any method.
 */
function followsLink({ method, headers }: Pick<RequestHead, 'method' | 'headers'>): boolean {
  const isSafe = (method === 'GET' || method === 'HEAD') && headers.upgrade === undefined;
  const isPage = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  return isSafe && isPage && headers.origin === undefined;
}

/**
 * Returns the origin that a browser sees for this request.
 * Only a proxy, and no page, can set `X-Forwarded-Proto` to `https`.
 */
function originOf(headers: IncomingHttpHeaders): string {
  const scheme = headers['x-forwarded-proto'] === 'https' ? 'https' : 'http';
  return `${scheme}://${withoutDefaultPort((headers.host ?? '').toLowerCase(), scheme)}`;
}

/** Removes the default port, because browsers omit it from origins. */
function withoutDefaultPort(host: string, scheme: string): string {
  const ending = `:${DEFAULT_PORTS[scheme]}`;
  return host.endsWith(ending) ? host.slice(0, -ending.length) : host;
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { http: '80', https: '443' };

/** Returns the host without its port, and an IPv6 address without its brackets. */
function hostnameOf(host: string): string {
  if (host.startsWith('[')) return host.slice(1, host.indexOf(']'));
  const colon = host.indexOf(':');
  return colon === -1 ? host : host.slice(0, colon);
}

function isLoopbackName(name: string): boolean {
  return name === 'localhost' || name === '::1' || /^127(\.\d{1,3}){3}$/.test(name);
}
