import { randomUUID } from 'node:crypto';
import { splitMounts } from '../core/code-package.ts';
import { unavailable } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import { secretsOf } from '../core/secret.ts';
import type { Instances } from '../instances/instances.ts';
import type { ReplacedAgent, Start } from '../instances/start.ts';
import { RecordRefused } from '../instances/start-with-record.ts';
import { pause } from '../lib/backoff.ts';
import {
  findAgent,
  findAgentByIdempotencyKey,
  findAgentByName,
  forgetIdempotencyKey,
} from '../storage/queries/agents.ts';
import type { AgentIdentity, StoredInstance } from '../storage/queries/instances.ts';
import { toInstance } from './agent-records.ts';
import type { AgentStarts } from './agent-starts.ts';
import type { CreateInstance } from './contract.ts';
import type { AgentsOptions } from './options.ts';
import { codeNotLoaded, createUndone, keyUsed, nameTaken, nodeNotAnswering } from './refusals.ts';

/** Most attempts of a create to claim a name whose holder vanishes before the refusal can name it. */
const MAX_INSERTS = 5;
/** Interval for polling a create that another node runs. */
const ELSEWHERE_LOOK_MS = 100;

interface AgentCreatesParts {
  readonly endReplaced: (id: string) => Promise<void>;
  readonly makeRoom: () => Promise<boolean>;
}

/** Creates of agents: decides which create gets a name or an idempotency key, and refuses the others. */
export class AgentCreates {
  readonly #options: AgentsOptions;
  readonly #instances: Instances;
  readonly #now: () => number;
  readonly #starts: AgentStarts;
  /** See `Agents.endReplaced`. */
  readonly #endReplaced: (id: string) => Promise<void>;
  /** See `AgentIdle.makeRoom`. */
  readonly #makeRoom: () => Promise<boolean>;

  constructor(options: AgentsOptions, starts: AgentStarts, { endReplaced, makeRoom }: AgentCreatesParts) {
    this.#options = options;
    this.#instances = options.instances;
    this.#now = options.now ?? Date.now;
    this.#starts = starts;
    this.#endReplaced = endReplaced;
    this.#makeRoom = makeRoom;
  }

  /** Returns the new agent, or the agent that has the idempotency key. */
  async create(request: CreateInstance): Promise<Instance> {
    for (let attempt = 0; attempt < MAX_INSERTS; attempt++) {
      const tried = request.replaces ? this.#tryReplace(request) : this.#tryCreate(request);
      const instance = (await tried) ?? (await this.#holderOfKey(request));
      if (instance) return instance;
    }
    const { namespace, name } = request.spec;
    throw unavailable(`agent ${namespace}/${name} is created and deleted all the time`);
  }

  /** Replaces the agent of the name. Returns undefined if the idempotency key is taken. */
  async #tryReplace({ spec, idempotency, stages }: CreateInstance): Promise<Instance | undefined> {
    const id = randomUUID();
    const ref = { id, epoch: 1 };
    const started = await this.#starts.startOf(ref, spec);
    stages?.end('checks');
    let old: ReplacedAgent | null = null;
    const start: Start = {
      ...started,
      ...(stages && { stages }),
      accept: loadFailure => {
        if (loadFailure !== null) throw codeNotLoaded(spec, loadFailure.message);
      },
      takesName: {
        name: spec,
        replaced: agent => {
          old = agent;
        },
      },
    };
    const intent = this.#draft(spec, start);
    const identity = { ...identityOf(spec), idempotency, isCandidate: true };
    let isTaken = true;
    try {
      await this.#findRoom(intent);
      this.#starts.assertMayStart();
      return await this.#starts.operations.run(id, 'create', async signal => {
        isTaken = !(await this.#instances.intend(intent, identity));
        stages?.end('row');
        if (isTaken) return undefined;
        await this.#confirm(intent, spec, secretsOf(spec.env));
        return await this.#starts.bringUp(intent, start, signal);
      });
    } finally {
      if (isTaken) {
        this.#starts.code.release(ref);
        await this.#starts.forgetFiles(ref, spec);
      }
      if (old !== null) await this.#endReplaced((old as ReplacedAgent).id);
    }
  }

  /** Creates an agent. Returns undefined if the name or the idempotency key is taken. */
  async #tryCreate({ spec, idempotency, stages }: CreateInstance): Promise<Instance | undefined> {
    const id = randomUUID();
    // Fails before anything is written if this installation cannot run the agent.
    const ref = { id, epoch: 1 };
    const start = { ...(await this.#starts.startOf(ref, spec)), ...(stages && { stages }) };
    stages?.end('checks');
    const intent = this.#draft(spec, start);
    const identity = { ...identityOf(spec), idempotency };
    let isTaken = true;
    try {
      await this.#findRoom(intent);
      this.#starts.assertMayStart();
      return await this.#starts.operations.run(id, 'create', async signal => {
        const secrets = secretsOf(spec.env);
        const refers = secrets.length > 0 || splitMounts(spec.mounts).packages.length > 0;
        const insert = () => this.#instances.intend(intent, identity);
        // The removal of a secret or a package finds its users in the records, so such a record precedes the
        // start. A repeated request and a refused one start nothing.
        if (!refers && idempotency === undefined && this.#instances.isCheap(intent) && this.#starts.fits(intent)) {
          stages?.end('row');
          isTaken = false;
          return await this.#starts.bringUp(intent, { ...start, insert }, signal);
        }
        isTaken = !(await insert());
        stages?.end('row');
        if (isTaken) return undefined;
        if (refers) await this.#confirm(intent, spec, secrets);
        return await this.#starts.bringUp(intent, start, signal);
      });
    } catch (error) {
      if (error instanceof RecordRefused) return undefined;
      throw error;
    } finally {
      if (isTaken) {
        this.#starts.code.release(ref);
        await this.#starts.forgetFiles(ref, spec);
      }
    }
  }

  /** Puts idle durable agents to sleep until the agent has room, or none is left. */
  async #findRoom(intent: StoredInstance): Promise<void> {
    while (!this.#starts.fits(intent) && (await this.#makeRoom()));
  }

  #draft(spec: InstanceSpec, { sandbox }: Start): StoredInstance {
    return this.#instances.draft({
      owner: { kind: 'agent', key: sandbox.instanceId },
      tenant: spec.tenant,
      sandboxType: spec.sandboxType,
      sandbox,
      concurrency: spec.concurrency,
      maxCallMs: spec.callTimeoutMs,
      spec: JSON.stringify(spec),
      ttlMs: spec.ttlMs ?? 0,
    });
  }

  /**
   * Checks that secrets and packages still exist, since one may have been removed before the record was
   * written. Rejects after undoing the create.
   */
  async #confirm(intent: StoredInstance, spec: InstanceSpec, secrets: readonly string[]): Promise<void> {
    try {
      if (secrets.length > 0) await this.#options.secrets?.check(intent.tenant, secrets);
      await this.#starts.code.confirm(spec);
    } catch (error) {
      this.#starts.code.release(intent);
      await this.#instances.undo(intent, error);
      throw error;
    }
  }

  /**
   * Explains why an insert was refused. Returns the agent that has the idempotency key, or throws the error
   * that names the holder. Returns undefined if the holder was removed meanwhile.
   */
  async #holderOfKey({ spec, idempotency, replaces }: CreateInstance): Promise<Instance | undefined> {
    const { database } = this.#options;
    await this.#instances.flushed();
    if (idempotency) {
      const holder = await findAgentByIdempotencyKey(database, spec.tenant, idempotency.key);
      if (holder && holder.stored.createdAtMs + LIMITS.idempotencyKeepMs <= this.#now()) {
        await forgetIdempotencyKey(database, holder.stored.id);
      } else if (holder) {
        if (holder.requestHash !== idempotency.requestHash) throw keyUsed(idempotency.key);
        const operation = this.#starts.operations.of(holder.stored.id);
        if (operation?.kind === 'create') return await operation.done;
        if (holder.stored.status !== 'CREATING' || holder.stored.epoch > 1) return toInstance(holder.stored);
        if (holder.stored.nodeId !== this.#options.nodeId) return await this.#createdElsewhere(holder.stored);
        // An earlier server was starting the agent. No client has its id, and the reconciler removes it.
        this.#instances.reconcileSoon();
        throw createUndone(idempotency.key);
      }
    }
    if (replaces) return undefined;
    const holder = await findAgentByName(database, spec.tenant, spec.namespace, spec.name);
    if (holder) throw nameTaken(toInstance(holder.stored));
    return undefined;
  }

  /** Waits for a create that another node runs. Returns the agent, or undefined if the create failed. */
  async #createdElsewhere({ id, nodeId }: StoredInstance): Promise<Instance | undefined> {
    const untilMs = performance.now() + this.#options.createTimeoutMs;
    while (performance.now() < untilMs && this.#options.isLost?.(nodeId) !== true) {
      await pause(ELSEWHERE_LOOK_MS);
      const agent = await findAgent(this.#options.database, id);
      if (agent === null) return undefined;
      if (agent.stored.status !== 'CREATING') return toInstance(agent.stored);
    }
    throw nodeNotAnswering(id);
  }
}

/** Returns the columns by which an agent is found. */
function identityOf({ namespace, name, labels, template }: InstanceSpec): AgentIdentity {
  return { namespace, name, labels, template, idempotency: undefined };
}
