import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { FrontendOptions } from '../../src/api/frontend-app.ts';
import { notFound } from '../../src/core/error.ts';
import type { FunctionInvocation } from '../../src/functions/function-invoker.ts';
import { TestCluster } from './cluster-bed.ts';
import { HostAccess } from './host-access.ts';
import { AGENT, Inside } from './passthrough-bed.ts';

export const URN = 'sn:cn:yrk:default:function:0@svc@hello:$latest';

const JOBS: ReadonlySet<string> = new Set(['done', 'long']);

async function* lines(count: number): AsyncIterable<Buffer> {
  for (let at = 0; at < count; at += 1) yield Buffer.from(`line ${at} of the log, ü\n`);
}

/** Returns fake functions and jobs for the routes. The event tells a function what to do. */
export function fakeServices(seen: FunctionInvocation[]): Pick<FrontendOptions, 'service' | 'jobs'> {
  const timings = { queueMs: 0, placeMs: 0.5, startMs: 0, loadMs: 0, runMs: 1.5 };
  const functions = {
    refusal: () => undefined,
    access: () => undefined,
    check: async (urn: string) => ({ urn, tenant: 'default' }),
    invoke: async (invocation: FunctionInvocation) => {
      seen.push(invocation);
      const event = JSON.parse(invocation.call.body.toString()) as { fail?: number; events?: number; size?: number };
      invocation.onPlaced?.('i1');
      for (let at = 0; at < (event.events ?? 0); at += 1) {
        invocation.onEvent?.(Buffer.from(`event ${at}`), () => undefined);
        await new Promise(resolve => setImmediate(resolve));
      }
      if (event.fail !== undefined)
        return { outcome: { ok: false, code: event.fail, text: 'no', runMicros: 1 }, timings };
      const data = Buffer.from(JSON.stringify('x'.repeat(event.size ?? 1)));
      return { outcome: { ok: true, data, runMicros: 1 }, timings };
    },
    endSession: async (_urn: string, _tenant: string | null, id: string) => id === 'known',
    interruptSession: async (_urn: string, _tenant: string | null, id: string) => id === 'known',
    instances: () => [],
    shortage: () => ({ waitingCalls: 0, startFailures: ['the last start failed'] }),
    logs: async () => lines(3),
  };
  const known = (id: string) => {
    if (!JOBS.has(id)) throw notFound(`Job ${id} does not exist`);
  };
  const jobs = {
    get: async (_tenant: string, id: string) => known(id),
    stop: async (_tenant: string, id: string) => {
      known(id);
      return id === 'long';
    },
    delete: async (_tenant: string, id: string) => known(id),
    log: async (_tenant: string, id: string) => {
      known(id);
      return lines(id === 'long' ? 5_000 : 2);
    },
    follow: async (_tenant: string, id: string) => {
      known(id);
      return lines(id === 'long' ? 5_000 : 2);
    },
  };
  return {
    service: {
      functions: functions as never,
      asyncCalls: { submit: async () => 'request-1' } as never,
      business: 'yrk',
      ownTenantOnly: false,
      webhookPrefixes: null,
      tracer: { start: () => null },
    },
    jobs: { jobs, packages: {}, schedules: {} } as never,
  };
}

/** Two replicas with an agent, functions and jobs, all of which belong to `cluster.owner`. */
export class ClusterWorld implements AsyncDisposable {
  readonly cluster: TestCluster;
  readonly inside: HostAccess;
  readonly ports = new Inside();
  readonly root: string;
  /** Invocations that functions received. */
  readonly seen: FunctionInvocation[];

  private constructor(cluster: TestCluster, root: string, seen: FunctionInvocation[]) {
    this.cluster = cluster;
    this.root = root;
    this.seen = seen;
    this.inside = new HostAccess(root);
    const { instances } = cluster.owner;
    instances.put(AGENT);
    instances.inside = this.inside;
    instances.onLogs = () => lines(5);
  }

  static async start(options: Partial<FrontendOptions> = {}): Promise<ClusterWorld> {
    const root = realpathSync(mkdtempSync(join(tmpdir(), 'rookery-cluster-')));
    writeFileSync(join(root, 'file.txt'), 'the content\n');
    writeFileSync(join(root, 'large.bin'), Buffer.alloc(3_000_000, 7));
    mkdirSync(join(root, 'dir'));
    const seen: FunctionInvocation[] = [];
    return new ClusterWorld(await TestCluster.start({ ...fakeServices(seen), ...options }), root, seen);
  }

  /** Base URLs of the owner (`direct`) and of the replica that forwards (`forwarded`). */
  get urls(): { readonly direct: string; readonly forwarded: string } {
    return { direct: this.cluster.owner.url, forwarded: this.cluster.first.url };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster[Symbol.asyncDispose]();
    await this.ports.close();
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Sends chunks to a server and returns all bytes received until the server closes. */
export async function say(url: string, ...chunks: readonly (string | Buffer)[]): Promise<Buffer> {
  const socket = net.connect({ port: Number(new URL(url).port), host: '127.0.0.1', allowHalfOpen: true });
  socket.setNoDelay(true);
  for (const chunk of chunks) {
    socket.write(chunk, 'latin1');
    // A turn of the event loop sends each chunk separately.
    await new Promise(resolve => setImmediate(resolve));
  }
  const answer = await buffer(socket);
  socket.destroy();
  return answer;
}

/** Returns an answer without its date and connection headers. Joins chunks, whose borders may differ. */
export function comparable(answer: Buffer): { readonly head: readonly string[]; readonly body: string } {
  const text = answer.toString('latin1');
  const end = text.indexOf('\r\n\r\n');
  const [status = '', ...headers] = text.slice(0, end).split('\r\n');
  const kept = headers.filter(line => !/^(date|connection|keep-alive):/i.test(line));
  const rest = text.slice(end + 4);
  const isChunked = /^transfer-encoding: chunked$/im.test(text.slice(0, end));
  return { head: [status, ...kept], body: isChunked ? joined(rest) : rest };
}

function joined(chunked: string): string {
  let body = '';
  let at = 0;
  for (;;) {
    const line = chunked.indexOf('\r\n', at);
    if (line === -1) return `${body} (cut short)`;
    const length = Number.parseInt(chunked.slice(at, line), 16);
    if (!(length > 0)) return `${body}${chunked.slice(line)}`;
    body += chunked.slice(line + 2, line + 2 + length);
    at = line + 2 + length + 2;
  }
}

/** Returns the head of a request with these header names and values unchanged. */
export function head(method: string, path: string, headers: readonly (readonly [string, string])[] = []): string {
  const lines = [['Host', 'localhost'], ['Connection', 'close'], ...headers].map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`;
}

export function headersOf({ rawHeaders }: IncomingMessage): readonly string[] {
  const found: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) found.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`);
  return found;
}
