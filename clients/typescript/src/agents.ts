import { createHash, randomUUID } from 'node:crypto';
import { basename, resolve } from 'node:path';
import { Agent } from './agent.ts';
import type { Code } from './code.ts';
import type { Connection, RequestOptions } from './connection.ts';
import { usageError } from './error.ts';
import { Conflict, NotFound } from './failures.ts';
import type { CreateAgentRequest, Mount, Operations } from './generated.ts';
import { untilThere } from './looks.ts';
import { type RunOptions, runFields } from './runs.ts';

export interface CreateOptions extends RunOptions, RequestOptions {
  /** Name of the agent. Absent: the name of the directory and a suffix made from the idempotency key. */
  readonly name?: string;
  /** Namespace of the name; default: `default`. */
  readonly namespace?: string;
  readonly mounts?: readonly Mount[];
  /** Absolute path of a directory on the service's machine. */
  readonly workspace?: string;
  /** Rule for restarts after the sandbox exits on its own. Absent: no restart. */
  readonly restart?: CreateAgentRequest['restart_policy'];
  /** Labels of the agent; `list` selects by them. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Time to live in seconds. Absent: until it is deleted. */
  readonly ttlSeconds?: number;
  /** Longest time in seconds without a call, a command or other access. Absent: no bound. */
  readonly idleSeconds?: number;
  /** Action at the end of either time; default: `delete`. */
  readonly onExpiry?: CreateAgentRequest['on_expiry'];
  /** URN of a registered function of kind `agent`, which supplies the code and all its settings. */
  readonly urn?: string;
  /**
   * Replaces the agent with this name. The old agent runs until the new one has loaded its code. Then the new
   * one gets the name, and the service deletes the old one. If the code does not load, the create fails and
   * the old agent continues.
   */
  readonly replace?: boolean;
  /**
   * Key that makes repeated creates return the same agent, if the options are the same too. Absent: a random
   * key, which the retries of this create share.
   */
  readonly idempotencyKey?: string;
}

/** Options of `Agents.getOrCreate`. */
export type GetOrCreateOptions = Omit<CreateOptions, 'name' | 'replace'> & { readonly name: string };

/** States of an agent that another client creates or deletes at this moment. */
const CHANGING: ReadonlySet<string> = new Set(['CREATING', 'STOPPING']);
const PAUSES = { firstMs: 100, longestMs: 500 };
/** Path in the sandbox at which the code is mounted. */
const CODE_PATH = '/code';
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Creates and finds agents. */
export class Agents {
  readonly #connection: Connection;
  readonly #code: Code;

  constructor(connection: Connection, code: Code) {
    this.#connection = connection;
    this.#code = code;
  }

  /**
   * Creates an agent and returns it when it accepts calls. Without `timeoutMs` only the service limits the
   * time. If the code does not load, the create succeeds and `record.load_error` has the reason (except with
   * `replace`). `await using agent = …` deletes the agent at the end of the block.
   */
  async create(options: CreateOptions): Promise<Agent> {
    const { signal, timeoutMs, traceId, code, urn, idempotencyKey = randomUUID() } = options;
    const request = { signal, timeoutMs, traceId };
    const source = code === undefined || code.startsWith('code://') ? code : await this.#code.upload(code, request);
    const mounts = [...(options.mounts ?? [])];
    if (source !== undefined) mounts.unshift({ source, target: CODE_PATH, readonly: true });
    const body: CreateAgentRequest = {
      namespace: options.namespace ?? 'default',
      name: options.name ?? madeUpName(code, idempotencyKey),
      mounts,
      ...(options.env === undefined ? {} : { env_vars: options.env }),
      ...(options.workspace === undefined ? {} : { workspace: options.workspace }),
      ...(options.expose === undefined ? {} : { expose: options.expose }),
      ...(options.restart === undefined ? {} : { restart_policy: options.restart }),
      ...(options.replace === undefined ? {} : { replace: options.replace }),
      ...lifetimeOf(options),
      ...(urn === undefined ? { runtime_spec: specOf(options) } : { urn }),
    };
    const { instance_id } = await this.#connection.call('createAgent', {
      ...request,
      body,
      headers: { 'idempotency-key': idempotencyKey },
      mayRepeat: true,
      isUnbounded: true,
    });
    return await this.#read(instance_id, request);
  }

  /**
   * Returns the agent that has the name, or creates it. An existing agent is returned as it is, whatever its
   * state: its code and its settings are not compared with the options. If another client creates or deletes
   * the agent at the same time, the method waits for its end. Without `timeoutMs` the wait has no limit.
   */
  async getOrCreate(options: GetOrCreateOptions): Promise<Agent> {
    const { name, namespace = 'default', signal, timeoutMs, traceId } = options;
    if ((options as CreateOptions).replace === true)
      throw usageError('getOrCreate never replaces an agent: call create with replace: true instead');
    return await untilThere({ signal, timeoutMs, traceId }, PAUSES, async request => {
      for (;;) {
        const agent = await this.#find(name, namespace, request);
        if (agent !== undefined) return CHANGING.has(agent.record.status) ? null : { value: agent };
        try {
          return { value: await this.create({ ...options, ...request }) };
        } catch (error) {
          // Only the refusal of a taken name has the id of the holder.
          if (!(error instanceof Conflict) || error.body?.instance_id === undefined) throw error;
        }
      }
    });
  }

  /** Returns the agent with an id, or with a name in `namespace`. Fails with status 404 if there is none. */
  async get(idOrName: string, options: RequestOptions & { readonly namespace?: string } = {}): Promise<Agent> {
    if (UUID.test(idOrName)) return await this.#read(idOrName, options);
    const { namespace = 'default' } = options;
    const agent = await this.#find(idOrName, namespace, options);
    if (agent !== undefined) return agent;
    throw new NotFound(`there is no agent ${namespace}/${idOrName}`, { status: 404 });
  }

  /** Yields the agents that match every filter, ordered by id. Each page is requested when it is needed. */
  async *list({
    signal,
    timeoutMs,
    traceId,
    ...filter
  }: RequestOptions & Omit<Operations['listAgents']['query'], 'cursor'> = {}): AsyncGenerator<Agent> {
    let cursor: string | undefined;
    do {
      const page = await this.#connection.call('listAgents', {
        signal,
        timeoutMs,
        traceId,
        query: { ...filter, cursor },
      });
      for (const record of page.instances) yield new Agent(this.#connection, record);
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
  }

  async #find(
    name: string,
    namespace: string,
    { signal, timeoutMs, traceId }: RequestOptions,
  ): Promise<Agent | undefined> {
    for await (const agent of this.list({ signal, timeoutMs, traceId, namespace, name })) return agent;
    return undefined;
  }

  async #read(instanceId: string, options: RequestOptions): Promise<Agent> {
    const { instance } = await this.#connection.call('getAgent', { ...options, params: { instanceId } });
    return new Agent(this.#connection, instance);
  }
}

function specOf(options: CreateOptions): NonNullable<CreateAgentRequest['runtime_spec']> {
  return {
    ...runFields(options),
    ...(options.code === undefined ? {} : { codePath: CODE_PATH }),
    ...(options.sandbox === undefined ? {} : { sandbox_type: options.sandbox }),
  };
}

/** Makes a name that is valid in an address. The same key and directory make the same name. */
function madeUpName(code: string | undefined, key: string): string {
  const base = code === undefined || code.startsWith('code://') ? 'agent' : basename(resolve(code));
  const words = base
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replace(/^-/, '')
    .slice(0, 30)
    .replace(/-$/, '');
  return `${words || 'agent'}-${createHash('sha256').update(key).digest('hex').slice(0, 8)}`;
}

/** Returns the fields about labels and the end that the options set. */
function lifetimeOf({ labels, ttlSeconds, idleSeconds, onExpiry }: CreateOptions): Partial<CreateAgentRequest> {
  return {
    ...(labels === undefined ? {} : { labels: { ...labels } }),
    ...(ttlSeconds === undefined ? {} : { ttl_seconds: ttlSeconds }),
    ...(idleSeconds === undefined ? {} : { idle_seconds: idleSeconds }),
    ...(onExpiry === undefined ? {} : { on_expiry: onExpiry }),
  };
}
