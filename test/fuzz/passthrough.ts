import http, { type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { LIMITS } from '../../src/core/limits.ts';
import { AGENT, at, type Bed, bed, Inside } from '../http/passthrough-bed.ts';
import { Random } from '../parts/random.ts';
import { type HostileAnswer, hostileAnswer } from './answers.ts';
import { escapesOf, type Fuzzer } from './fuzzer.ts';

/**
 * Attacks the real frontend. Callers have tokens and reuse connections, and a server inside a sandbox answers
 * anything.
 */
const CALLERS = 4;
const REQUESTS = 4;
/** Limit above `passIdleMs` of this run, which bounds every request. A busy machine needs the difference. */
const HANG_MS = 20_000;
const IDLE_MS = 400;
const MAX_GROWTH_BYTES = 200 * 1024 * 1024;
/** Spreads the numbers of requests, so that a damaged mark matches no other request. */
const SPREAD = 387_420_489n;
const MARKS = 1_000_000_000n;
/** Number of iterations after which memory use is stable. */
const WARM = 200;
const CARRIERS = ['Authorization', 'Cookie', 'Proxy-Authorization', 'Referer', 'X-Copy', 'x_auth', 'Connection'];

interface Run {
  readonly it: Bed;
  readonly port: number;
  readonly faults: string[];
  /** Answers that the server inside will give, by the mark of the request. */
  readonly plans: Map<string, HostileAnswer>;
  /** Marks of all requests so far. */
  readonly marks: Set<string>;
  readonly counts: { requests: number; passed: number; refused: number; broken: number; upgrades: number };
}

/** Runs random hostile answers against the frontend until a limit, and returns the faults. */
export const fuzzPassthrough: Fuzzer = async ({ seed, maxIterations, maxSeconds }) => {
  const limits = LIMITS as { passIdleMs: number };
  const { passIdleMs } = limits;
  limits.passIdleMs = IDLE_MS;
  const inside = new Inside();
  const identity = { tenant: 'default', role: 'developer' } as const;
  const isToken = (token: string) => /^token-\d+-of-the-platform$/.test(token);
  const it = await bed({
    auth: {
      known: token => (isToken(token) ? identity : undefined),
      verify: async token => (isToken(token) ? identity : Promise.reject(new Error('unknown'))),
    },
  });
  const plans = new Map<string, HostileAnswer>();
  const faults: string[] = [];
  const counts = { requests: 0, passed: 0, refused: 0, broken: 0, upgrades: 0 };
  const port = await inside.tcp(socket => void serve(socket, plans, faults));
  const run: Run = { it, port, faults, plans, marks: new Set(), counts };
  const endMs = performance.now() + maxSeconds * 1000;
  let iterations = 0;
  let level = 0;
  try {
    const escapes = await escapesOf(async () => {
      for (; iterations < maxIterations && performance.now() < endMs && faults.length < 10; iterations += 1) {
        const random = new Random(seed + iterations);
        const known = faults.length;
        await Promise.all(
          Array.from({ length: CALLERS }, (_, number) => attack(run, random, iterations * CALLERS + number)),
        );
        for (let index = known; index < faults.length; index += 1)
          faults[index] = `seed ${seed + iterations}: ${faults[index]}`;
        plans.clear();
        it.requests.length = 0;
        it.lines.length = 0;
        if (iterations === WARM) level = process.memoryUsage().rss;
      }
    });
    faults.push(...escapes.map(each => `escaped: ${each}`));
    if (level > 0 && process.memoryUsage().rss - level > MAX_GROWTH_BYTES) faults.push('memory grew');
    if (!(await settles(() => inside.sockets.size === 0))) faults.push(`${inside.sockets.size} connections are left`);
  } finally {
    limits.passIdleMs = passIdleMs;
    await inside.close();
    await it[Symbol.asyncDispose]();
  }
  return { iterations, faults, counts };
};

/** Reads one request, then sends its planned answer. */
async function serve(socket: Socket, plans: Run['plans'], faults: string[]): Promise<void> {
  let heard = '';
  let isAnswered = false;
  socket.on('end', () => socket.end());
  socket.on('data', async data => {
    heard += data.toString('latin1');
    const token = /token-\d+-of/.exec(heard)?.[0];
    if (token !== undefined) faults.push(`the inside heard ${token}: ${JSON.stringify(heard)}`);
    if (isAnswered || !heard.includes('\r\n\r\n')) return;
    isAnswered = true;
    const plan = plans.get(/X-Mark: (m\d{9})!/.exec(heard)?.[1] ?? '');
    for (const part of plan?.parts ?? []) {
      socket.write(part);
      await turn();
    }
    if (plan?.end === 'reset') socket.resetAndDestroy();
    else if (plan?.end !== 'stay') socket.end();
  });
}

/** Sends several requests on one connection, each followed by a request to the service itself. */
async function attack(run: Run, random: Random, number: number): Promise<void> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  try {
    for (let index = 0; index < REQUESTS; index += 1) {
      // Marks have one length and end with a character that an answer has nowhere else. Parts of two marks
      // never form a third one.
      const name = `m${String((BigInt(number * REQUESTS + index + 1) * SPREAD) % MARKS).padStart(9, '0')}`;
      run.marks.add(`${name}!`);
      run.plans.set(name, hostileAnswer(random, `${name}!`));
      run.counts.requests += 1;
      await request(run, { random, agent, name, token: `token-${number}-of-the-platform` });
      const health = await ask(run.it, { path: '/healthz', agent });
      if (health.status !== 200 || !health.body.includes('"status"')) {
        run.faults.push(`${name}: the request behind it was answered ${JSON.stringify(health)}`);
      }
    }
  } finally {
    agent.destroy();
  }
}

interface Attack {
  readonly random: Random;
  readonly agent: http.Agent;
  readonly name: string;
  readonly token: string;
}

async function request(
  { it, port, faults, marks, counts }: Run,
  { random, agent, name, token }: Attack,
): Promise<void> {
  const isUpgrade = random.chance(0.1);
  const headers: Record<string, string> = { 'X-Auth': token, 'X-Mark': `${name}!` };
  const carrier = random.pick(CARRIERS);
  if (random.chance(0.5)) headers[carrier] = carried(carrier, token, random);
  if (isUpgrade)
    Object.assign(headers, { Connection: 'Upgrade', Upgrade: random.pick(['own', 'websocket', 'own, h2c']) });
  const method = isUpgrade ? 'GET' : random.pick(['GET', 'GET', 'POST', 'PUT', 'HEAD', 'DELETE', 'OPTIONS']);
  const query = random.chance(0.2) ? `&${random.pick(['token', '%74oken', 'next'])}=${token}` : '';
  const body = method === 'POST' || method === 'PUT' ? 'x'.repeat(random.below(100_000)) : '';
  const seen = await ask(it, { path: at(port, '/x', query), agent: isUpgrade ? false : agent, method, headers, body });
  if (seen.broken !== undefined) {
    counts.broken += 1;
    // An answer may break off, but an answer that the caller cannot parse is an error.
    if (!/ECONNRESET|EPIPE|hang up|aborted/.test(seen.broken)) faults.push(`${name}: the caller saw ${seen.broken}`);
  } else if (seen.status === 101) counts.upgrades += 1;
  else if (seen.status === 502 || seen.status === 504) counts.refused += 1;
  else counts.passed += 1;
  const said = seen.headers + seen.body;
  if (seen.interim > 0) faults.push(`${name}: an interim answer came through`);
  if (seen.status === 101 && !isUpgrade) faults.push(`${name}: 101 without being asked for`);
  if (/set-cookie\n.*iam_token/i.test(seen.headers))
    faults.push(`${name}: the platform’s cookie was set: ${seen.headers}`);
  const stranger = said.match(/m\d{9}!/g)?.find(each => each !== `${name}!` && marks.has(each));
  if (stranger !== undefined && !seen.body.includes('"code":502')) faults.push(`${name} read what was for ${stranger}`);
  if (said.includes(AGENT.id) && seen.status === 200) faults.push(`${name}: the platform’s query came back`);
}

function carried(carrier: string, token: string, random: Random): string {
  if (carrier === 'Cookie') return random.pick([`a=1; iam_token=${token}`, `iam_token=${token}`, `b=${token}`]);
  if (carrier === 'Authorization') return random.pick([`Bearer ${token}`, `bearer\t${token}`, `Bearer ${token}, x`]);
  if (carrier === 'Connection')
    return random.pick(['keep-alive, X-Auth', 'keep-alive, Content-Length', 'keep-alive, Host']);
  return `http://localhost/?token=${token}`;
}

interface Seen {
  status: number;
  headers: string;
  body: string;
  interim: number;
  broken: string | undefined;
}

interface Question {
  readonly path: string;
  readonly agent: http.Agent | false;
  readonly method?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

/** Sends a request and returns the answer as a strict client reads it. */
async function ask(it: Bed, { path, agent, method = 'GET', headers = {}, body = '' }: Question): Promise<Seen> {
  const seen: Seen = { status: 0, headers: '', body: '', interim: 0, broken: undefined };
  const signal = AbortSignal.timeout(HANG_MS);
  await new Promise<void>(resolve => {
    const broke = (error: Error & { code?: string }) => {
      seen.broken = signal.aborted ? 'nothing for too long' : `${error.code ?? ''} ${error.message}`;
      resolve();
    };
    const request = http.request(it.url + path, { method, headers, agent, signal });
    request.on('error', broke).on('information', () => {
      seen.interim += 1;
    });
    const take = (answer: IncomingMessage) => {
      seen.status = answer.statusCode ?? 0;
      seen.headers = answer.rawHeaders.join('\n');
      answer.setEncoding('latin1').on('error', broke).on('end', resolve);
      answer.on('data', data => {
        seen.body += data;
      });
    };
    request.on('response', take).on('upgrade', (answer, socket) => {
      seen.status = answer.statusCode ?? 0;
      seen.headers = answer.rawHeaders.join('\n');
      socket.on('error', () => undefined).destroy();
      resolve();
    });
    request.end(body);
  });
  return seen;
}

async function settles(isSo: () => boolean): Promise<boolean> {
  const endMs = performance.now() + HANG_MS;
  while (!isSo() && performance.now() < endMs) await delay(20);
  return isSo();
}
