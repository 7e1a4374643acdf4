import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { Instance } from '../../core/instance.ts';

/** An agent with a template, as clients of the E2B protocol see it. */
export interface E2bSandbox {
  readonly instance: Instance;
  /** The agent's id without its dashes, because it is part of host names. */
  readonly id: string;
  /** The secret that opens port 49983 of this sandbox (`X-Access-Token`). */
  readonly token: string;
  /** The secret that opens its other ports. null: they are public. */
  readonly trafficToken: string | null;
}

/** The agents that `E2bSandboxes` reads. */
export interface SandboxSource {
  /** Returns an agent of any tenant. null: it does not exist. */
  find(id: string): Promise<Instance | null>;
  /** Returns the ids of all agents that have a template, of every tenant and node. */
  sandboxIds(): Promise<readonly string[]>;
}

/** The parts of a file URL that its signature covers. */
export interface SignedUrl {
  /** The path of the query, not resolved. */
  readonly path: string;
  readonly operation: 'read' | 'write';
  /** The user of the query; `''`: none. */
  readonly username: string;
  /** The decimal time of the query, in seconds since 1970; `''`: the URL does not expire. */
  readonly expiration: string;
}

const HEX_ID = /^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/;
const TOKEN = /^([0-9a-f]{32})([0-9a-f]{64})$/;

/** Returns the agent's id of a sandbox id. null: no agent can have such an id. */
export function agentIdOf(sandboxId: string): string | null {
  return HEX_ID.exec(sandboxId)?.slice(1).join('-') ?? null;
}

/** Returns the sandbox id of an agent's id. */
export function sandboxIdOf(agentId: string): string {
  return agentId.replaceAll('-', '');
}

/** Returns the signature that a file URL of the sandbox with this token must have. */
export function signatureOf({ path, operation, username, expiration }: SignedUrl, token: string): string {
  const covered = [path, operation, username, token, ...(expiration === '' ? [] : [expiration])];
  return `v1_${createHash('sha256').update(covered.join(':')).digest('base64').replace(/=+$/, '')}`;
}

/** Returns true if both texts are equal. The time depends on their lengths only. */
export function isSameText(one: string, other: string): boolean {
  const [left, right] = [Buffer.from(one), Buffer.from(other)];
  return left.length === right.length && timingSafeEqual(left, right);
}

/** Reads the signed parts of a query. null: it has no signature. */
export function readSignedUrl(
  query: URLSearchParams,
  operation: SignedUrl['operation'],
): { readonly url: SignedUrl; readonly signature: string } | null {
  const signature = query.get('signature');
  if (signature === null || signature === '') return null;
  const url = {
    path: query.get('path') ?? '',
    operation,
    username: query.get('username') ?? '',
    expiration: query.get('signature_expiration') ?? '',
  };
  // A client that does not escape the plus signs of base64 sends them as blanks.
  return { url, signature: signature.replaceAll(' ', '+') };
}

/**
 * Finds sandboxes by id, access token or signed URL.
 * A token consists of the sandbox's id and its HMAC with the key of the installation. It needs no storage,
 * names its sandbox, and is the same on all replicas.
 */
export class E2bSandboxes {
  readonly #source: SandboxSource;
  readonly #key: Buffer;
  /** Tokens by agent id, of the last read. */
  #tokens: ReadonlyMap<string, string> = new Map();
  #reading: Promise<void> | null = null;
  #nextRead: Promise<void> | null = null;

  /** `key`: the key that signs links to public URLs. */
  constructor(source: SandboxSource, key: Buffer) {
    this.#source = source;
    this.#key = key;
  }

  /** Returns the access token of an agent. */
  tokenOf({ id: agentId }: Pick<Instance, 'id'>): string {
    const id = sandboxIdOf(agentId);
    return id + this.#mac('e2b', id);
  }

  /** Returns the sandbox of an agent. */
  of(instance: Instance): E2bSandbox {
    const id = sandboxIdOf(instance.id);
    const trafficToken = instance.spec.hasPrivatePorts === true ? this.#mac('e2b-traffic', id) : null;
    return { instance, id, token: this.tokenOf(instance), trafficToken };
  }

  /**
   * Returns the sandbox with this id. null: it does not exist, has no template, or belongs to another tenant.
   * `tenant` null: any.
   */
  async byId(tenant: string | null, sandboxId: string): Promise<E2bSandbox | null> {
    const agentId = agentIdOf(sandboxId);
    const instance = agentId && (await this.#source.find(agentId));
    if (!instance || instance.spec.template === undefined) return null;
    if (tenant !== null && instance.spec.tenant !== tenant) return null;
    return this.of(instance);
  }

  /** Returns the id of the token's sandbox, even if the sandbox is gone. null: the token is wrong. */
  idOfToken(token: string): string | null {
    const [, id = ''] = TOKEN.exec(token) ?? [];
    const agentId = agentIdOf(id);
    return agentId !== null && isSameText(this.tokenOf({ id: agentId }), token) ? id : null;
  }

  /** Returns the sandbox whose access token this is. null: the token is wrong, or the sandbox is gone. */
  async byToken(token: string): Promise<E2bSandbox | null> {
    const id = this.idOfToken(token);
    return id === null ? null : await this.byId(null, id);
  }

  /**
   * Returns the sandbox whose token made the signature of a file URL, also of an expired one. null: none did.
   */
  async bySignature(query: URLSearchParams, operation: SignedUrl['operation']): Promise<E2bSandbox | null> {
    const signed = readSignedUrl(query, operation);
    if (signed === null) return null;
    let agentId = this.#signer(signed.url, signed.signature);
    if (agentId === null) {
      await this.#readIds();
      agentId = this.#signer(signed.url, signed.signature);
    }
    return agentId === null ? null : await this.byId(null, sandboxIdOf(agentId));
  }

  #mac(use: 'e2b' | 'e2b-traffic', id: string): string {
    return createHmac('sha256', this.#key).update(`${use}\n${id}`).digest('hex');
  }

  #signer(url: SignedUrl, signature: string): string | null {
    for (const [agentId, token] of this.#tokens) {
      if (isSameText(signatureOf(url, token), signature)) return agentId;
    }
    return null;
  }

  /** Reads the ids again. Concurrent callers share a read that starts after their call. */
  #readIds(): Promise<void> {
    if (this.#reading === null) return this.#startRead();
    this.#nextRead ??= this.#reading.then(
      () => this.#startRead(),
      () => this.#startRead(),
    );
    return this.#nextRead;
  }

  #startRead(): Promise<void> {
    this.#nextRead = null;
    const reading = this.#source.sandboxIds().then(ids => {
      this.#tokens = new Map(ids.map(id => [id, this.#tokens.get(id) ?? this.tokenOf({ id })]));
    });
    this.#reading = reading;
    const end = () => {
      if (this.#reading === reading) this.#reading = null;
    };
    reading.then(end, end);
    return reading;
  }
}
