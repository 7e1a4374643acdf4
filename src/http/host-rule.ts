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
  /** For unsafe methods and WebSocket upgrades: true when a browser says that another site's page sends it. */
  isCrossSite(headers: IncomingHttpHeaders): boolean;
}

const WILDCARD_ADDRESSES = new Set(['0.0.0.0', '::', '']);
/** Answers of `allowsHost` that are kept; names come from callers, so they are bounded. */
const MAX_REMEMBERED_HOSTS = 64;

export function createHostRule(options: HostRuleOptions): HostRule {
  const allowed = new Set(options.allowedHosts.map(name => name.toLowerCase()));
  const bound = options.boundHost.toLowerCase();
  const anyAddress = WILDCARD_ADDRESSES.has(bound);
  const remembered = new Set<string>();

  const isNamed = (host: string) => allowed.has(host) || allowed.has(hostnameOf(host));

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
      if (headers['sec-fetch-site'] === 'cross-site') return true;
      const { origin } = headers;
      if (origin === undefined) return false;
      const match = /^https?:\/\/([^/?#@]+)$/i.exec(origin);
      if (!match) return true;
      const from = (match[1] as string).toLowerCase();
      const to = hostnameOf((headers.host ?? '').toLowerCase());
      const fromName = hostnameOf(from);
      if (fromName === to || isNamed(from)) return false;
      return !(isLoopbackName(fromName) && isLoopbackName(to));
    },
  };
}

/** Without its port; an IPv6 address without its brackets. */
function hostnameOf(host: string): string {
  if (host.startsWith('[')) return host.slice(1, host.indexOf(']'));
  const colon = host.indexOf(':');
  return colon === -1 ? host : host.slice(0, colon);
}

function isLoopbackName(name: string): boolean {
  return name === 'localhost' || name === '::1' || /^127(\.\d{1,3}){3}$/.test(name);
}
