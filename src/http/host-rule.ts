import type { IncomingHttpHeaders } from 'node:http';

export interface HostRuleOptions {
  /** The address that the listener is bound to. */
  readonly boundHost: string;
  /** Further names (`rookery.example.com`, or with a port). */
  readonly allowedHosts: readonly string[];
}

/** Which names this server answers to, and which pages may make a browser change things here. */
export interface HostRule {
  /** `localAddress` is the address that the connection arrived at. */
  allowsHost(host: string | undefined, localAddress: string | undefined): boolean;
  /**
   * For unsafe methods and WebSocket upgrades: true when a browser says that a page of another origin (scheme, host and port) sends it,
   * and `allowedHosts` does not name that page's.
   */
  isCrossSite(headers: IncomingHttpHeaders): boolean;
}

const ORIGIN = /^https?:\/\/([^/?#@]+)$/;
const WILDCARD_ADDRESSES = new Set(['0.0.0.0', '::', '']);
/** Answers of `allowsHost` that are kept; names come from callers, so they are bounded. */
const MAX_REMEMBERED_HOSTS = 64;

export function createHostRule(options: HostRuleOptions): HostRule {
  const allowed = new Set(options.allowedHosts.map(name => name.toLowerCase()));
  const bound = options.boundHost.toLowerCase();
  const anyAddress = WILDCARD_ADDRESSES.has(bound);
  const remembered = new Set<string>();

  const isNamed = (host: string) => allowed.has(host) || allowed.has(hostnameOf(host));
  /**
   * Of a name without a port, pages on the usual ports only, since anybody's program may listen on another one; or on the port that was
   * asked for, where a proxy in front speaks TLS.
   */
  const isNamedOrigin = (origin: string, host: string) => {
    const from = ORIGIN.exec(origin.toLowerCase())?.[1];
    return from !== undefined && (allowed.has(from) || (from === host && allowed.has(hostnameOf(host))));
  };

  return {
    allowsHost(sent, localAddress) {
      if (sent === undefined) return false;
      if (remembered.has(sent)) return true;
      const host = sent.toLowerCase();
      const name = hostnameOf(host);
      if (isLoopbackName(name) || name === bound || isNamed(host)) {
        if (remembered.size < MAX_REMEMBERED_HOSTS) remembered.add(sent);
        return true;
      }
      // Bound to every address: then the one at which the connection arrived is "the bound address".
      return anyAddress && localAddress !== undefined && name === localAddress.replace(/^::ffff:/, '');
    },

    isCrossSite(headers) {
      const { origin } = headers;
      const site = headers['sec-fetch-site'];
      // Neither: no browser, or none that would tell.
      if (origin === undefined && site === undefined) return false;
      const isListed = origin !== undefined && isNamedOrigin(origin, (headers.host ?? '').toLowerCase());
      if (site !== undefined && site !== 'same-origin' && site !== 'none') {
        // Of a site that `allowedHosts` names, another host of it may be a page of ours. Any other page on this machine is not.
        if (site !== 'same-site' || !isListed) return true;
      }
      return origin !== undefined && !isListed && origin.toLowerCase() !== originOf(headers);
    },
  };
}

/** The origin, for a browser, of the address to which the request was sent; only a proxy, and no page, can say that it was `https` there. */
function originOf(headers: IncomingHttpHeaders): string {
  const scheme = headers['x-forwarded-proto'] === 'https' ? 'https' : 'http';
  return `${scheme}://${withoutDefaultPort((headers.host ?? '').toLowerCase(), scheme)}`;
}

/** As browsers write origins. */
function withoutDefaultPort(host: string, scheme: string): string {
  const ending = `:${DEFAULT_PORTS[scheme]}`;
  return host.endsWith(ending) ? host.slice(0, -ending.length) : host;
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { http: '80', https: '443' };

/** Without its port; an IPv6 address without its brackets. */
function hostnameOf(host: string): string {
  if (host.startsWith('[')) return host.slice(1, host.indexOf(']'));
  const colon = host.indexOf(':');
  return colon === -1 ? host : host.slice(0, colon);
}

function isLoopbackName(name: string): boolean {
  return name === 'localhost' || name === '::1' || /^127(\.\d{1,3}){3}$/.test(name);
}
