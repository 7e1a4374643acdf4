import type { AgentInstances } from '../../agents/contract.ts';
import { type AddressName, addressLabel, type Expose } from '../../core/address.ts';
import { ServiceError } from '../../core/error.ts';
import { formatUrn, isFunctionName, LATEST } from '../../core/urn.ts';
import type { LivesWith } from '../../http/lives-with.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';

/** What an address leads to. */
export interface AddressTarget extends Expose {
  readonly tenant: string;
  /** What a signed link is for. */
  readonly subject: string;
  readonly livesWith: LivesWith;
  /** A way in for one request; what it needs of an instance is given back when `signal` aborts. */
  readonly open: (signal: AbortSignal) => Promise<SandboxAccess>;
}

/** Functions, as far as addresses need them. */
export interface ExposedFunctions {
  readonly business: string;
  /** The port of a version that is exposed; null: none, or there is no such version. */
  exposed(urn: string): Promise<Expose | null>;
  /** A slot on an instance of it, until `signal` aborts. */
  open(urn: string, signal: AbortSignal): Promise<SandboxAccess>;
}

/** Finds what addresses lead to: an agent, else the latest version of a function whose service stands in the place of the namespace. */
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
      // Of a kind that cannot be called.
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

/** Another agent of the same name is another thing: links of the one before do not lead to it. */
export function agentSubject(id: string): string {
  return `agent ${id}`;
}

export function functionSubject(functionUrn: string): string {
  return `function ${functionUrn}`;
}

export interface AddressDomain {
  /** Below which addresses are, with a port when it is not the usual one of its scheme. */
  readonly domain: string;
  readonly scheme: 'http' | 'https';
}

/** The URL of an address; null: it has a path only. `host` is that of the request: below `localhost` the port is the one that was asked for. */
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

/** Browsers take every name below it for this machine. */
export const LOCAL_DOMAIN = 'localhost';
