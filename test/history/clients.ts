import { setTimeout as delay } from 'node:timers/promises';
import type { Random } from '../parts/random.ts';
import type { Answer, Client } from './client.ts';
import type { AgentHistory, CallHistory, FunctionHistory, History } from './record.ts';

export interface Places {
  readonly codeDir: string;
  /** Directory on the host where running code writes its marks. */
  readonly marksDir: string;
  readonly runtime: string;
  /** Longest time from an acknowledged change until every call uses it. */
  readonly effectiveMs: number;
}

/** Largest number of agents alive at one time. More would only slow the machine down. */
const MOST_AGENTS = 12;
const MOST_FUNCTIONS = 4;
const MOST_JOB_LINES = 6;
/** Largest number of asynchronous calls in sequence. */
const MOST_LATER = 6;
/** Pause before the next request when no replica answers. */
const AWAY_MS = 100;

/** Callers that in turn do something at random and record the answers. */
export class Clients {
  readonly #client: Client;
  readonly #history: History;
  readonly #random: Random;
  readonly #places: Places;
  /** Prefix that makes the names of one client unique. */
  readonly #label: string;
  #names = 0;

  constructor(client: Client, history: History, random: Random, places: Places, label: string) {
    this.#label = label;
    this.#client = client;
    this.#history = history;
    this.#random = random;
    this.#places = places;
  }

  async act(): Promise<void> {
    const dice = this.#random.next();
    const agent = this.#random.pickAny(
      this.#history.agents.filter(({ ids, deleteSent }) => ids.size > 0 && !deleteSent),
    );
    const fn = this.#random.pickAny(this.#history.functions.filter(each => !each.isChanging));
    if (dice < 0.08 || agent === undefined) await this.#create();
    else if (dice < 0.12) await this.#createAgain(agent);
    else if (dice < 0.16) await this.#delete(agent);
    else if (dice < 0.5) await this.#invoke(agent);
    else if (dice < 0.6) await this.#look(agent);
    else if (fn === undefined || dice < 0.62) await this.#register();
    else if (dice < 0.68) await this.#change(fn, () => this.#update(fn));
    else if (dice < 0.7) await this.#change(fn, () => this.#publish(fn));
    else if (dice < 0.85) await this.#call(fn);
    else if (dice < 0.95)
      for (let left = this.#random.integer(1, MOST_LATER); left > 0; left--) await this.#callLater();
    else await this.#submit();
  }

  async #create(): Promise<void> {
    const alive = this.#history.agents.filter(({ deleteSent }) => !deleteSent).length;
    if (alive >= MOST_AGENTS) {
      const unanswered = this.#random.pickAny(this.#history.agents.filter(({ ids }) => ids.size === 0));
      if (unanswered) await this.#createAgain(unanswered);
      return;
    }
    const number = this.#name();
    const agent: AgentHistory = {
      name: `agent-${number}`,
      key: `key-${number}`,
      ids: new Set(),
      deleteSent: false,
      deleteAcked: false,
      calls: [],
    };
    this.#history.agents.push(agent);
    await this.#createAgain(agent);
  }

  /** Repeats a create with the same key and body. A client without an answer must get the same instance. */
  async #createAgain(agent: AgentHistory): Promise<void> {
    const answer = await this.#ask('create', 'POST', '/api/agent', {
      headers: { 'idempotency-key': agent.key },
      body: {
        namespace: 'history',
        name: agent.name,
        ...countingAgent(this.#places),
      },
    });
    if (answer?.status !== 200) return;
    // A delete in progress removes the key, and then a second create makes another instance.
    if (!agent.deleteSent) agent.ids.add(String(answer.body.instance_id));
    else await this.#client.ask('DELETE', `/api/agent/${String(answer.body.instance_id)}`);
  }

  async #delete(agent: AgentHistory): Promise<void> {
    const id = idOf(agent);
    agent.deleteSent = true;
    const answer = await this.#ask('delete', 'DELETE', `/api/agent/${id}?grace=1`);
    if (answer?.status === 200) agent.deleteAcked = true;
    else if (answer?.status === 404 && !agent.deleteAcked) agent.deleteAcked = true;
  }

  async #invoke(agent: AgentHistory): Promise<void> {
    const call: CallHistory = {
      id: `call-${this.#name()}`,
      sentAt: performance.now(),
      answeredAt: null,
      answer: null,
    };
    agent.calls.push(call);
    const answer = await this.#ask('invoke', 'POST', `/api/agent/${idOf(agent)}/invoke`, {
      body: { id: call.id, file: agent.name, ms: this.#random.integer(0, 30) },
    });
    if (answer?.status === 200) {
      call.answeredAt = performance.now();
      call.answer = answer.body.data as CallHistory['answer'];
    } else if (answer?.status === 404 && !agent.deleteSent) {
      this.#violation(`an invoke of ${agent.name} answered 404: ${JSON.stringify(answer.body)}`);
    }
  }

  async #look(agent: AgentHistory): Promise<void> {
    const answer = await this.#ask('get', 'GET', `/api/agent/${idOf(agent)}`);
    if (agent.deleteSent || answer === null) return;
    const status = (answer.body.instance as { status?: string } | undefined)?.status;
    if (answer.status === 404 || status === 'FAILED') {
      this.#violation(`GET of ${agent.name}, which nobody deleted, answered ${JSON.stringify(answer)}`);
    }
  }

  async #register(): Promise<void> {
    if (this.#history.functions.length >= MOST_FUNCTIONS) return;
    const name = `0@history@f${this.#name()}`;
    const answer = await this.#ask('register', 'POST', '/serverless/v1/functions', {
      meta: true,
      body: {
        name,
        kind: 'faas',
        runtime: this.#places.runtime,
        cpu: 100,
        memory: 128,
        handler: 'history.generation',
        storageType: 'local',
        codePath: this.#places.codeDir,
        timeout: 30,
        maxInstance: 2,
        autoScaleConfig: { scaleDownTime: 2000 },
        environment: { GENERATION: '0' },
      },
    });
    if (answer?.body.code !== 0) return;
    const { functionVersionUrn: urn, revisionId } = answer.body.function as Record<string, string>;
    if (urn === undefined || revisionId === undefined) throw new Error(JSON.stringify(answer.body));
    this.#history.functions.push({
      name,
      urn,
      revisionId,
      generation: 0,
      acknowledged: [],
      sentGeneration: 0,
      published: new Set(),
      isChanging: false,
    });
  }

  async #change(fn: FunctionHistory, change: () => Promise<void>): Promise<void> {
    fn.isChanging = true;
    try {
      await change();
    } finally {
      fn.isChanging = false;
    }
  }

  async #update(fn: FunctionHistory): Promise<void> {
    const generation = ++fn.sentGeneration;
    const answer = await this.#ask('update', 'PUT', `/serverless/v1/functions/${encodeURIComponent(fn.name)}`, {
      meta: true,
      body: { revisionId: fn.revisionId, environment: { GENERATION: String(generation) } },
    });
    if (answer?.body.code === 0) {
      fn.generation = generation;
      fn.acknowledged.push({ generation, atMs: performance.now() });
      fn.revisionId = String((answer.body.function as Record<string, unknown>).revisionId);
      return;
    }
    // The service may have stored the update without an answer, so the record decides.
    const record = await this.#latest(fn);
    if (record === null) return;
    if (answer?.body.code === 4134 && record.revisionId === fn.revisionId) {
      this.#violation(`${fn.name}: an update with the latest revision answered 4134`);
    }
    const stored = Number((record.environment as Record<string, string>).GENERATION);
    if (stored < fn.generation)
      this.#violation(`${fn.name}: generation ${fn.generation} was lost, ${stored} is stored`);
    fn.generation = Math.max(fn.generation, stored);
    fn.revisionId = String(record.revisionId);
  }

  async #publish(fn: FunctionHistory): Promise<void> {
    if (fn.published.size >= 8) return;
    const version = `v${this.#name()}`;
    const answer = await this.#ask(
      'publish',
      'POST',
      `/serverless/v1/functions/${encodeURIComponent(fn.name)}/versions`,
      { meta: true, body: { revisionId: fn.revisionId, versionNumber: version } },
    );
    if (answer?.body.code === 0) fn.published.add(version);
  }

  async #latest(fn: FunctionHistory): Promise<Record<string, unknown> | null> {
    const path = `/serverless/v1/functions/${encodeURIComponent(fn.name)}?versionNumber=$latest`;
    const answer = await this.#ask('query', 'GET', path, { meta: true });
    if (answer?.body.code === 4115) this.#violation(`${fn.name}, which was registered, is not found`);
    return answer?.body.code === 0 ? (answer.body.function as Record<string, unknown>) : null;
  }

  async #call(fn: FunctionHistory): Promise<void> {
    const sentMs = performance.now();
    const effective = fn.acknowledged.findLast(({ atMs }) => atMs <= sentMs - this.#places.effectiveMs);
    const answer = await this.#ask('call', 'POST', `/serverless/v1/functions/${fn.urn}/invocations`, { body: {} });
    if (answer?.status === 404) this.#violation(`a call of ${fn.name} answered 404: ${JSON.stringify(answer.body)}`);
    if (answer?.status !== 200 || effective === undefined) return;
    const generation = Number(answer.body);
    if (generation < effective.generation) {
      const text = `${fn.name} answered with generation ${generation} after ${effective.generation} was acknowledged`;
      this.#history.staleCalls.push({ urn: fn.urn, text, sentMs, endedMs: performance.now() });
    }
  }

  async #callLater(): Promise<void> {
    const mark = `async-${this.#name()}`;
    const answer = await this.#ask('async', 'POST', '/invocations/default/history/marker/', {
      headers: { 'x-invoke-type': 'async' },
      body: { mark, ms: this.#random.integer(0, 200) },
    });
    if (answer?.status === 202) this.#history.asyncCalls.push({ mark, requestId: String(answer.body.requestId) });
  }

  async #submit(): Promise<void> {
    const id = `job-${this.#name()}`;
    const lines = this.#random.integer(1, MOST_JOB_LINES);
    const exitCode = this.#random.next() < 0.2 ? 3 : 0;
    const job = { id, lines, exitCode, acked: false };
    this.#history.jobs.push(job);
    const answer = await this.#ask('submit', 'POST', '/api/jobs/', {
      body: {
        submission_id: id,
        runtime_env: { working_dir: this.#places.marksDir },
        entrypoint: `echo run >> ${id}; for i in $(seq ${lines}); do echo line $i; sleep 0.1; done; echo end; exit ${exitCode}`,
      },
    });
    job.acked = answer?.status === 200;
  }

  async #ask(what: string, ...args: Parameters<Client['ask']>): Promise<Answer | null> {
    const answer = await this.#client.ask(...args);
    this.#history.count(`${what} ${answer?.status ?? 'no answer'}`);
    if (answer === null) await delay(AWAY_MS);
    return answer;
  }

  #name(): string {
    return `${this.#label}-${++this.#names}`;
  }

  #violation(text: string): void {
    this.#history.violations.add(text);
  }
}

/** Returns the fields of a create except the name. Calls of the agent leave marks. */
export function countingAgent({ codeDir, marksDir, runtime }: Places): object {
  return {
    mounts: [
      { source: codeDir, target: '/code', readonly: true },
      { source: marksDir, target: '/marks' },
    ],
    runtime_spec: {
      runtime,
      codePath: '/code',
      handler: 'history.count',
      memory: 128,
      cpu: 100,
      rootfs: { imageurl: 'host' },
    },
  };
}

export function idOf(agent: AgentHistory): string {
  const [id] = agent.ids;
  if (id === undefined) throw new Error(`${agent.name} was never acknowledged`);
  return id;
}
