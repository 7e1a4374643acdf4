import { createHash, randomUUID } from 'node:crypto';
import { basename, resolve } from 'node:path';
import { Agent } from './agent.ts';
import type { Code } from './code.ts';
import type { Connection, RequestOptions } from './connection.ts';
import { RookeryError } from './error.ts';
import type { CreateAgentRequest, Mount, Operations } from './generated.ts';
import { type RunOptions, runFields } from './runs.ts';

export interface CreateOptions extends RunOptions, RequestOptions {
  /** Absent: that of the directory, with something behind it that no other has. */
  readonly name?: string;
  /** `default` unless it is said. */
  readonly namespace?: string;
  readonly mounts?: readonly Mount[];
  /** A directory of the service's machine. */
  readonly workspace?: string;
  readonly restart?: CreateAgentRequest['restart_policy'];
  /** The URN of a registered function of kind `agent`: everything about its code comes from there. */
  readonly urn?: string;
  /** The same key and options answer with the same agent; absent: one of this create, for its retries. */
  readonly idempotencyKey?: string;
}

/** Where the code is mounted. */
const CODE_PATH = '/code';
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export class Agents {
  readonly #connection: Connection;
  readonly #code: Code;

  constructor(connection: Connection, code: Code) {
    this.#connection = connection;
    this.#code = code;
  }

  /**
   * Creates an agent, and answers when it takes calls. Code that cannot be loaded does not fail it: `record.load_error` says why.
   * `await using agent = …` deletes it at the end of the block.
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

  /** One by its id, or by its name in a namespace. */
  async get(idOrName: string, options: RequestOptions & { readonly namespace?: string } = {}): Promise<Agent> {
    if (UUID.test(idOrName)) return await this.#read(idOrName, options);
    const { namespace = 'default' } = options;
    for await (const agent of this.list({ ...options, namespace, name: idOrName })) return agent;
    throw new RookeryError(`there is no agent ${namespace}/${idOrName}`, { status: 404 });
  }

  /** All that fit, page by page as they are asked for. */
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

/** It can stand in an address, and is the same for the same key. */
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
