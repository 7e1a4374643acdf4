import type { IncomingMessage, ServerResponse } from 'node:http';
import { LIMITS } from '../../core/limits.ts';
import { drained } from '../../http/limits/drained.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { checkToken, checkTokenOrSignature } from './access.ts';
import type { Procedures, SandboxDefaults } from './call.ts';
import { checkAcceptsIdentity, sendFile } from './download.ts';
import { HttpError, reasonOf, toHttpError } from './errors.ts';
import { filesystemProcedures } from './filesystem-service.ts';
import { PolledWatchers } from './polled-watchers.ts';
import { PROCESS_PROCEDURES } from './process-service.ts';
import { serveCall } from './rpc.ts';
import { receiveFiles } from './upload.ts';

/** The sandbox that a request is for. */
export interface EnvdSandbox {
  readonly id: string;
  /** The secret that opens the sandbox: `X-Access-Token`, and the key of signatures. */
  readonly token: string;
  /** The variables of the create. */
  readonly environment: Readonly<Record<string, string>>;
  readonly metrics: () => Promise<EnvdMetrics>;
  /** Account and directory of requests that name none; `''`: those of every sandbox. */
  readonly defaults: SandboxDefaults;
}

/** The present use of resources. Sizes are in bytes. */
export interface EnvdMetrics {
  readonly cpuCount: number;
  readonly cpuUsedPct: number;
  readonly memTotal: number;
  readonly memUsed: number;
  readonly memCache: number;
  readonly diskUsed: number;
  readonly diskTotal: number;
}

export interface EnvdTarget {
  /** Path and query as the sandbox sees them, percent-encoded as sent. */
  readonly url: string;
  readonly sandbox: EnvdSandbox;
  readonly access: SandboxAccess;
  /** Receives the reason of a failed request, for the access log. */
  readonly reportFailure?: (text: string) => void;
}

const BYTES_PER_MIB = 1024 * 1024;
const CORS_MAX_AGE_SECONDS = 7200;

/**
 * Answers port 49983 of sandboxes: health, files, and the services `process.Process` and
 * `filesystem.Filesystem` of the Connect protocol.
 */
export class Envd {
  readonly #watchers = new PolledWatchers();
  readonly #streams = new Set<ServerResponse>();
  readonly #procedures: Procedures = { ...PROCESS_PROCEDURES, ...filesystemProcedures(this.#watchers) };

  /**
   * Answers a request whose body has not been read. Checks the access token or the signature. Never throws: a
   * failure is the answer, or closes the connection.
   */
  async serve(raw: IncomingMessage, response: ServerResponse, target: EnvdTarget): Promise<void> {
    response.on('error', () => undefined);
    try {
      await this.#serve(raw, response, target);
    } catch (thrown) {
      const error = toHttpError(thrown);
      target.reportFailure?.(reasonOf(error));
      // An upload that failed has stopped reading.
      raw.unpipe();
      raw.resume();
      if (!response.headersSent) await drained(raw);
      answerError(response, error);
    } finally {
      // Reads and discards the rest of the body, so that the client can read the answer.
      raw.resume();
    }
  }

  /**
   * Breaks all open streams, and ends the watchers that clients poll. The processes continue. Must be called
   * before the HTTP server waits for its connections.
   */
  close(): void {
    for (const response of this.#streams) response.destroy();
    this.#watchers.close();
  }

  async #serve(raw: IncomingMessage, response: ServerResponse, target: EnvdTarget): Promise<void> {
    const { sandbox, access } = target;
    const [path = '', query = ''] = split(target.url);
    addCors(raw, response);
    if (raw.method === 'OPTIONS') return void response.writeHead(204).end();
    if (path === '/health') return void response.writeHead(204, { 'Cache-Control': 'no-store' }).end();
    if (path === '/files') return await serveFiles(raw, response, target, new URLSearchParams(query));
    const procedure = Object.hasOwn(this.#procedures, path.slice(1)) ? this.#procedures[path.slice(1)] : undefined;
    const isRead = path === '/envs' || path === '/metrics';
    if (procedure === undefined && !isRead) throw new HttpError(404, `no route ${path}`);
    checkToken(raw.headers, sandbox.token);
    checkMethod(raw, response, isRead ? ['GET', 'HEAD'] : ['POST']);
    if (path === '/envs') return sendJson(response, sandbox.environment);
    if (procedure === undefined) return sendJson(response, toMetrics(await sandbox.metrics()));
    if (procedure.kind !== 'unary') {
      this.#streams.add(response);
      response.once('close', () => this.#streams.delete(response));
    }
    const reportFailure = target.reportFailure ?? (() => undefined);
    return await serveCall(procedure, { raw, response, sandbox, access, reportFailure });
  }
}

async function serveFiles(
  raw: IncomingMessage,
  response: ServerResponse,
  { sandbox, access }: EnvdTarget,
  query: URLSearchParams,
): Promise<void> {
  checkMethod(raw, response, ['GET', 'HEAD', 'POST']);
  const isWrite = raw.method === 'POST';
  checkTokenOrSignature(raw.headers, query, isWrite ? 'write' : 'read', sandbox.token);
  const over = new AbortController();
  response.once('close', () => over.abort());
  response.setTimeout(LIMITS.fileIdleMs, () => response.destroy());
  const user = query.get('username') || sandbox.defaults.user;
  const path = query.get('path');
  const { signal } = over;
  if (isWrite) sendJson(response, await receiveFiles(raw, { access, path, user, signal }));
  else {
    checkAcceptsIdentity(raw);
    await sendFile(raw, response, path ?? '', () => access.readFile(path ?? '', { user }, signal));
  }
}

function split(url: string): readonly [path: string, query: string] {
  const at = url.indexOf('?');
  return at === -1 ? [url, ''] : [url.slice(0, at), url.slice(at + 1)];
}

function checkMethod(raw: IncomingMessage, response: ServerResponse, methods: readonly string[]): void {
  if (methods.includes(raw.method ?? '')) return;
  response.setHeader('Allow', methods.join(', '));
  throw new HttpError(405, `the method must be ${methods.join(' or ')}`);
}

/**
 * Opens the answers to pages of every origin. They need the access token, which no browser adds by itself.
 */
function addCors(raw: IncomingMessage, response: ServerResponse): void {
  response.setHeader('Access-Control-Allow-Origin', '*');
  response.setHeader('Access-Control-Expose-Headers', '*');
  if (raw.method !== 'OPTIONS') return;
  response.setHeader('Access-Control-Allow-Methods', 'GET, HEAD, POST, PUT, PATCH, DELETE');
  response.setHeader('Access-Control-Allow-Headers', raw.headers['access-control-request-headers'] ?? '*');
  response.setHeader('Access-Control-Max-Age', CORS_MAX_AGE_SECONDS);
}

function sendJson(response: ServerResponse, value: object, status = 200): void {
  const body = JSON.stringify(value);
  const type = 'application/json; charset=utf-8';
  response.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) }).end(body);
}

function answerError(response: ServerResponse, { status, message }: HttpError): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  for (const name of ['Content-Disposition', 'Last-Modified', 'ETag']) response.removeHeader(name);
  sendJson(response, { code: status, message }, status);
}

function toMetrics(metrics: EnvdMetrics): object {
  return {
    ts: Math.floor(Date.now() / 1000),
    cpu_count: metrics.cpuCount,
    cpu_used_pct: metrics.cpuUsedPct,
    mem_total: metrics.memTotal,
    mem_used: metrics.memUsed,
    mem_cache: metrics.memCache,
    mem_total_mib: Math.floor(metrics.memTotal / BYTES_PER_MIB),
    mem_used_mib: Math.floor(metrics.memUsed / BYTES_PER_MIB),
    disk_used: metrics.diskUsed,
    disk_total: metrics.diskTotal,
  };
}
