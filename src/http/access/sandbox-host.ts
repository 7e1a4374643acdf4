import type { IncomingMessage } from 'node:http';
import { hasTwoHosts, pathOf } from './address-host.ts';

/** A request that reaches a sandbox by the E2B protocol. */
export interface ForSandbox {
  /** The left-most label of the host name, `<port>-<id>`; null: headers name port and sandbox. */
  readonly label: string | null;
  /** Path and query for the sandbox. */
  readonly path: string;
  /** A sentence with the reason to refuse the request in any case. null: there is none. */
  readonly problem: string | null;
}

/** The one route for all requests to sandboxes. Every path behind the prefix belongs to the sandbox. */
export const IN_SANDBOX_URL = '/.e2b-sandbox';
/** Prefix of the control API. */
export const E2B_PREFIX = '/e2b';
/** Prefix of requests to sandboxes that headers name. */
const SANDBOX_PREFIX = `${E2B_PREFIX}/sandbox`;

interface Turned {
  readonly sentUrl: string;
  /** True if the host name is below the domain, so that no other rule about hosts applies. */
  readonly isByHost: boolean;
  /** null: the request is for the control API. */
  readonly sandbox: ForSandbox | null;
}

const turned = new WeakMap<IncomingMessage, Turned>();

/** Returns how a request reaches a sandbox. undefined: it does not. */
export function forSandbox(request: IncomingMessage): ForSandbox | undefined {
  return turned.get(request)?.sandbox ?? undefined;
}

/** Returns true if the host name of a request is below the setting `e2b.domain`. */
export function isBySandboxHost(request: IncomingMessage): boolean {
  return turned.get(request)?.isByHost === true;
}

/** Restores the URL of a request. Must be called after the router has chosen the route. */
export function restoreSandboxUrl(request: IncomingMessage): void {
  const it = turned.get(request);
  if (it !== undefined) request.url = it.sentUrl;
}

/** Recognizes requests of the E2B protocol: below `/e2b/sandbox`, and by host names below a domain. */
export class SandboxHosts {
  /** Matches hosts below the domain; null: there is no domain. */
  readonly #pattern: RegExp | null;

  /** `domain`: without its port; null: there is none. */
  constructor(domain: string | null) {
    const name = domain?.toLowerCase().replaceAll('.', '\\.');
    this.#pattern =
      name === undefined ? null : new RegExp(`^(api|sandbox|[0-9]{1,8}-[a-z0-9-]{1,60})\\.${name}(?::\\d{1,5})?$`);
  }

  /** Returns the label of a host below the domain. null: it is another host. */
  labelOf(host: string | undefined): string | null {
    if (this.#pattern === null || host === undefined) return null;
    return this.#pattern.exec(host.toLowerCase())?.[1] ?? null;
  }

  /** Redirects a request to its route, before the router sees it. `giveSandboxUrlBack` restores the URL. */
  turn(request: IncomingMessage): void {
    const sentUrl = request.url as string;
    const { host = '' } = request.headers;
    const label = this.labelOf(host);
    if (label === null) {
      if (!isBelowPrefix(sentUrl)) return;
      const path = withSlash(sentUrl.slice(SANDBOX_PREFIX.length));
      turned.set(request, { sentUrl, isByHost: false, sandbox: { label, path, problem: null } });
      request.url = IN_SANDBOX_URL;
      return;
    }
    const url = pathOf(sentUrl, host.toLowerCase());
    const problem =
      url === null ? 'the request is for another host than its Host' : hasTwoHosts(request) ? 'it has two hosts' : null;
    if (label === 'api' && problem === null) {
      turned.set(request, { sentUrl, isByHost: true, sandbox: null });
      request.url = `${E2B_PREFIX}${url}`;
      return;
    }
    const named = label === 'sandbox' || label === 'api' ? null : label;
    turned.set(request, { sentUrl, isByHost: true, sandbox: { label: named, path: url ?? '/', problem } });
    request.url = IN_SANDBOX_URL;
  }
}

function isBelowPrefix(url: string): boolean {
  if (!url.startsWith(SANDBOX_PREFIX)) return false;
  const next = url[SANDBOX_PREFIX.length];
  return next === undefined || next === '/' || next === '?';
}

/** Returns the rest of a URL with the slash that a path begins with. */
function withSlash(rest: string): string {
  return rest.startsWith('/') ? rest : `/${rest}`;
}
