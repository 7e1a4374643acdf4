import type { Random } from '../parts/random.ts';
import type { Answer, Client, Wish } from './client.ts';
import { countingAgent, type Places } from './clients.ts';
import type { History } from './record.ts';

const NAME_TAKEN = 4101;
/** Time without a call after which a session has ended. */
const SESSION_MS = 30_000;
const SESSION_SECONDS = 120;

export const LIMITED = 'limited';
export const LIMITED_INSTANCES = 2;
const LIMITED_PATH = '/invocations/default/history/limited/';
const SESSIONS_PATH = '/invocations/default/history/sessions/';

/**
 * Requests that can reveal errors of several replicas. Two replicas may give one name away, or one may miss a
 * change that another acknowledged. A function may get too many instances, and a session may move.
 */
export class ClusterClients {
  readonly #client: Client;
  readonly #history: History;
  readonly #random: Random;
  readonly #places: Places;
  readonly #label: string;
  #names = 0;
  #session: { readonly boot: string; readonly sentMs: number; readonly answeredMs: number } | null = null;

  constructor(client: Client, history: History, random: Random, places: Places, label: string) {
    this.#client = client;
    this.#history = history;
    this.#random = random;
    this.#places = places;
    this.#label = label;
  }

  async act(): Promise<void> {
    const dice = this.#random.next();
    if (dice < 0.1) await this.#raceForAgent();
    else if (dice < 0.16) await this.#raceForFunction();
    else if (dice < 0.22) await this.#raceForJob();
    else if (dice < 0.65) await this.#callLimited();
    else await this.#callInSession();
  }

  async #raceForAgent(): Promise<void> {
    const name = this.#name('race');
    const create = (wish: Wish) =>
      this.#ask('raced create', 'POST', '/api/agent', {
        body: { namespace: 'history', name, ...countingAgent(this.#places) },
        ...wish,
      });
    const winners = (await this.#twice(create)).filter(answer => answer?.status === 200) as Answer[];
    const [winner] = winners;
    if (winners.length > 1) this.#violation(`the name ${name} was given away twice: ${JSON.stringify(winners)}`);
    if (winner === undefined) return;
    const id = String(winner.body.instance_id);
    const elsewhere = { avoid: winner.replica };
    const [got, listed, called] = await Promise.all([
      this.#ask('get elsewhere', 'GET', `/api/agent/${id}`, elsewhere),
      this.#ask('list elsewhere', 'GET', `/api/agent?namespace=history&limit=1000`, elsewhere),
      this.#ask('invoke elsewhere', 'POST', `/api/agent/${id}/invoke`, {
        body: { id: name, file: name },
        ...elsewhere,
      }),
    ]);
    const ids = (listed?.body.instances as { instance_id: string }[] | undefined)?.map(each => each.instance_id);
    if (listed?.status === 200 && !ids?.includes(id)) this.#violation(`${name} is not in the list of another replica`);
    for (const [what, answer] of [
      ['GET', got],
      ['an invoke', called],
    ] as const) {
      if (answer?.status === 404)
        this.#violation(`${what} of ${name} elsewhere answered 404 after it was acknowledged`);
    }
    await this.#ask('delete', 'DELETE', `/api/agent/${id}?grace=1`);
  }

  async #raceForFunction(): Promise<void> {
    const name = `0@history@${this.#name('r').replaceAll('-', '')}`;
    const register = (wish: Wish) =>
      this.#ask('raced register', 'POST', '/serverless/v1/functions', {
        meta: true,
        body: { name, ...functionOf(this.#places), handler: 'history.session', timeout: 30, maxInstance: 1 },
        ...wish,
      });
    const answers = await this.#twice(register);
    const winners = answers.filter(answer => answer?.body.code === 0) as Answer[];
    const [winner] = winners;
    if (winners.length > 1) this.#violation(`the name ${name} was registered twice: ${JSON.stringify(winners)}`);
    if (winner === undefined) {
      const isTaken = answers.every(answer => answer?.body.code === NAME_TAKEN);
      if (isTaken) this.#violation(`nobody could register ${name}, and both answers say that somebody has`);
      return;
    }
    const path = `/serverless/v1/functions/${encodeURIComponent(name)}`;
    const { functionVersionUrn: urn } = winner.body.function as { functionVersionUrn: string };
    const elsewhere = { avoid: winner.replica };
    const [found, called] = await Promise.all([
      this.#ask('query elsewhere', 'GET', `${path}?versionNumber=$latest`, { meta: true, ...elsewhere }),
      this.#ask('call elsewhere', 'POST', `/serverless/v1/functions/${urn}/invocations`, { body: {}, ...elsewhere }),
    ]);
    if (found?.status === 200 && found.body.code !== 0)
      this.#violation(`${name} was registered, and another replica says ${JSON.stringify(found)}`);
    if (called?.status === 404)
      this.#violation(`${name} was registered, and a call elsewhere says ${JSON.stringify(called)}`);
    await this.#ask('unregister', 'DELETE', path, { meta: true });
  }

  async #raceForJob(): Promise<void> {
    const id = this.#name('race-job');
    const job = { id, lines: 1, exitCode: 0, acked: false };
    this.#history.jobs.push(job);
    const submit = (wish: Wish) =>
      this.#ask('raced submit', 'POST', '/api/jobs/', {
        body: {
          submission_id: id,
          runtime_env: { working_dir: this.#places.marksDir },
          // A second request with the same id would get the first answer.
          entrypoint: `echo run >> ${id}; echo line 1; echo end; : ${wish.on ?? 'other'}`,
        },
        ...wish,
      });
    const winners = (await this.#twice(submit)).filter(answer => answer?.status === 200) as Answer[];
    const [winner] = winners;
    if (winners.length > 1) this.#violation(`the id ${id} was given away twice: ${JSON.stringify(winners)}`);
    if (winner === undefined) return;
    job.acked = true;
    const found = await this.#ask('job elsewhere', 'GET', `/api/jobs/${id}`, { avoid: winner.replica });
    if (found?.status === 404)
      this.#violation(`${id} was submitted, and another replica says ${JSON.stringify(found)}`);
  }

  async #callLimited(): Promise<void> {
    const id = this.#name('limited');
    const ms = this.#random.integer(0, 150);
    const answer = await this.#ask('limited call', 'POST', LIMITED_PATH, { body: { id, file: LIMITED, ms } });
    if (answer?.status === 200) this.#history.answeredLimited.add(id);
    if (answer?.status === 404) this.#violation(`a call of the limited function answered ${JSON.stringify(answer)}`);
  }

  async #callInSession(): Promise<void> {
    const sentMs = performance.now();
    const session = { sessionID: `session-${this.#label}`, sessionTTL: SESSION_SECONDS, concurrency: 1 };
    const answer = await this.#ask('call in a session', 'POST', SESSIONS_PATH, {
      headers: { 'x-instance-session': JSON.stringify(session) },
      body: {},
    });
    if (answer?.status !== 200) return;
    const { boot } = answer.body as { boot: string };
    const before = this.#session;
    const answeredMs = performance.now();
    this.#session = { boot, sentMs, answeredMs };
    if (before === null || before.boot === boot || answeredMs - before.sentMs > SESSION_MS) return;
    const text = `the session of ${this.#label} went from instance ${before.boot} to ${boot}`;
    this.#history.sessionMoves.push({ text, sentMs: before.sentMs, endedMs: answeredMs });
  }

  /** Sends a request twice at the same moment, on two replicas if there are two. */
  async #twice(ask: (wish: Wish) => Promise<Answer | null>): Promise<readonly (Answer | null)[]> {
    const one = this.#client.anyReplica();
    return await Promise.all([ask({ on: one }), ask({ avoid: one })]);
  }

  async #ask(what: string, ...args: Parameters<Client['ask']>): Promise<Answer | null> {
    const answer = await this.#client.ask(...args);
    this.#history.count(`${what} ${answer?.status ?? 'no answer'}`);
    return answer;
  }

  #name(what: string): string {
    return `${what}-${this.#label}-${++this.#names}`;
  }

  #violation(text: string): void {
    this.#history.violations.add(text);
  }
}

function functionOf({ codeDir, marksDir, runtime }: Places): object {
  return {
    kind: 'faas',
    runtime,
    cpu: 100,
    memory: 128,
    storageType: 'local',
    codePath: codeDir,
    rootfs: { mounts: [{ source: marksDir, target: '/marks' }] },
  };
}

/** Registers the functions that all clients call. */
export async function registerShared(client: Client, places: Places): Promise<void> {
  for (const more of [
    { name: '0@history@limited', handler: 'history.limited', maxInstance: LIMITED_INSTANCES, concurrentNum: 1 },
    { name: '0@history@sessions', handler: 'history.session', maxInstance: 3, concurrentNum: 8 },
  ]) {
    const answer = await client.ask('POST', '/serverless/v1/functions', {
      meta: true,
      body: { ...functionOf(places), ...more, timeout: 60, autoScaleConfig: { scaleDownTime: 2000 } },
    });
    if (answer?.body.code !== 0) throw new Error(`${more.name} was not registered: ${JSON.stringify(answer)}`);
  }
}
