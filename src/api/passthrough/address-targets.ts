import type { AgentInstances } from '../../agents/contract.ts';
import { type AddressName, addressLabel, type Expose } from '../../core/address.ts';
import { ServiceError } from '../../core/error.ts';
import { formatUrn, isFunctionName, LATEST } from '../../core/urn.ts';
import type { LivesWith } from '../../http/route-config.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';

/** The agent or function at a public URL. */
export interface AddressTarget extends Expose {
  readonly tenant: string;
  /** The subject of a signed link. */
  readonly subject: string;
  readonly livesWith: LivesWith;
  /** Opens access to the sandbox for one request. A function's slot is released when `signal` aborts. */
  readonly open: (signal: AbortSignal) => Promise<SandboxAccess>;
}

/** The operations of functions that public URLs need. */
export interface ExposedFunctions {
  readonly business: string;
  /** Returns the exposed port of a version. null: no port is exposed, or the version does not exist. */
  exposed(urn: string): Promise<Expose | null>;
  /** Acquires a slot on an instance of the version, until `signal` aborts. */
  open(urn: string, signal: AbortSignal): Promise<SandboxAccess>;
}

/**
 * Finds the target of a public URL: an agent, else the latest version of a function.
 * The namespace of the URL names the function's service.
 */
export class AddressTargets {
  readonly #agents: Pick<AgentInstances, 'list' | 'access'>;
  readonly #functions: ExposedFunctions | null;

  constructor(agents: Pick<AgentInstances, 'list' | 'access'>, functions: ExposedFunctions | null) {
    this.#agents = agents;
    this.#functions = functions;
  }

  async find(it: AddressName): Promise<AddressTarget | null> {
    return (await this.#agent(it)) ?? (await this.#function(it));
  }

  async #agent(it: AddressName): Promise<AddressTarget | null> {
    const { instances } = await this.#agents.list({ ...it, limit: 1, cursor: null });
    const agent = instances[0];
    const expose = agent?.spec.expose;
    if (agent === undefined || expose === undefined) return null;
    const { id } = agent;
    return {
      ...expose,
      tenant: it.tenant,
      subject: agentSubject(id),
      livesWith: { thing: 'instance', keyOf: () => id },
      open: () => this.#agents.access(it.tenant, id),
    };
  }

  async #function({ tenant, namespace, name }: AddressName): Promise<AddressTarget | null> {
    const functions = this.#functions;
    const named = `0@${namespace}@${name}`;
    if (functions === null || !isFunctionName(named)) return null;
    const { business } = functions;
    const urn = formatUrn({ business, tenant, name: named, version: LATEST });
    const expose = await functions.exposed(urn).catch((error: unknown) => {
      // The function is of a kind that cannot be called.
      if (error instanceof ServiceError && error.code === 'failed_precondition') return null;
      throw error;
    });
    if (expose === null) return null;
    const functionUrn = formatUrn({ business, tenant, name: named, version: null });
    return {
      ...expose,
      tenant,
      subject: functionSubject(functionUrn),
      livesWith: { thing: 'function', keyOf: () => functionUrn },
      open: signal => functions.open(urn, signal),
    };
  }
}

/**
 * Returns the subject of links to an agent.
 * The id is part of it, so that old links do not lead to a new agent of the same name.
 */
export function agentSubject(id: string): string {
  return `agent ${id}`;
}

export function functionSubject(functionUrn: string): string {
  return `function ${functionUrn}`;
}

export interface AddressDomain {
  /** The domain of public URLs, with a port unless it is the default port of the scheme. */
  readonly domain: string;
  readonly scheme: 'http' | 'https';
}

/**
 * Returns the public URL with a host name. null: only a URL by path exists.
 * Below `localhost` the port is that of `host`, the `Host` header of the request.
 */
export function addressUrl(
  it: AddressName,
  { domain, scheme }: AddressDomain,
  host: string | undefined,
): string | null {
  const label = addressLabel(it);
  if (label === null) return null;
  const port = domain === LOCAL_DOMAIN ? (/:\d{1,5}$/.exec(host ?? '')?.[0] ?? '') : '';
  return `${scheme}://${label}.${domain}${port}/`;
}

/** The domain below which browsers resolve every name to this machine. */
export const LOCAL_DOMAIN = 'localhost';
