/**
 * Generates load over raw sockets with HTTP/1.1, for machines without wrk and for rows that measure refusals.
 */
import { connect } from 'node:net';
import { readAnswer } from './answer.ts';

export interface LoadRequest {
  readonly url: string;
  /** Paths to call, each in turn. */
  readonly paths: readonly string[];
  /** Body of each request. `%UNIQUE%` is replaced by a different text in each request. */
  readonly body: string;
  /** Method of each request, POST by default. */
  readonly method?: 'GET' | 'POST';
  readonly token?: string;
  readonly connections: number;
  readonly durationMs: number;
  /** Pause of a caller between a 429 or 503 and its next request. */
  readonly refusedPauseMs?: number;
}

export interface LoadResult {
  /** Number of answers with a 2xx status. */
  readonly requests: number;
  /** Number of answers with status 429 or 503. */
  readonly refused: number;
  /** Number of answers with any other status, and of lost connections. */
  readonly failed: number;
  /** Seconds from the moment when all callers were connected. Later answers are not counted. */
  readonly seconds: number;
  /** Latency of the 2xx answers. */
  readonly p50Micros: number;
  readonly p99Micros: number;
  readonly maxMicros: number;
  /** Latency of the refusals, if there were any. */
  readonly refusedP99Micros?: number;
}

/**
 * Read buffer of all connections. Each read is processed before the next one begins.
 * Otherwise Node.js allocates 64 KiB for each answer, on processors that the generator shares with the
 * measured server.
 */
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024);

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

async function generate(request: LoadRequest): Promise<LoadResult> {
  const { hostname, port } = new URL(request.url);
  const authorization = request.token === undefined ? '' : `authorization: Bearer ${request.token}\r\n`;
  const messageOf = (path: string, body: string) =>
    Buffer.from(
      `${request.method ?? 'POST'} ${path} HTTP/1.1\r\nhost: ${hostname}:${port}\r\ncontent-type: application/json\r\n${authorization}` +
        `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
  const isUnique = request.body.includes('%UNIQUE%');
  const messages = request.paths.map(path => messageOf(path, request.body));
  const ok: number[] = [];
  const refused: number[] = [];
  let failed = 0;
  let next = 0;
  /** End of the measurement. It is set when every caller is connected, so that connecting is not measured. */
  let endsAt = Number.POSITIVE_INFINITY;
  const begins: (() => void)[] = [];
  const begin = () => {
    endsAt = performance.now() + request.durationMs;
    for (const send of begins) send();
  };

  const caller = () =>
    new Promise<void>(resolve => {
      const socket = connect({
        host: hostname,
        port: Number(port),
        noDelay: true,
        onread: {
          buffer: READ_BUFFER,
          callback: (bytes, buffer) => {
            take((buffer as Buffer).subarray(0, bytes));
            return true;
          },
        },
      });
      let sentAt = 0;
      let rest: Buffer | undefined;
      let isDone = false;
      const finish = () => {
        if (isDone) return;
        isDone = true;
        socket.destroy();
        resolve();
      };
      const send = () => {
        if (performance.now() >= endsAt) {
          finish();
          return;
        }
        const index = next++ % messages.length;
        const path = request.paths[index] ?? '';
        const message = isUnique ? messageOf(path, request.body.replaceAll('%UNIQUE%', String(next))) : messages[index];
        if (message === undefined) throw new Error('the load has no paths');
        sentAt = performance.now();
        socket.write(message);
      };
      socket.on('connect', () => {
        if (begins.push(send) === request.connections) begin();
      });
      const take = (chunk: Buffer): void => {
        if (isDone) return;
        const bytes = rest === undefined ? chunk : Buffer.concat([rest, chunk]);
        const answer = readAnswer(bytes);
        if (answer === null) {
          // The next read overwrites the buffer, so the incomplete bytes are copied.
          rest = Buffer.from(bytes);
          return;
        }
        rest = undefined;
        const now = performance.now();
        if (now >= endsAt) {
          finish();
          return;
        }
        const { status, closes } = answer;
        const tookMicros = (now - sentAt) * 1000;
        if (status >= 200 && status < 300) ok.push(tookMicros);
        else if (status === 429 || status === 503) refused.push(tookMicros);
        else failed += 1;
        if (closes) finish();
        else if ((status === 429 || status === 503) && request.refusedPauseMs) setTimeout(send, request.refusedPauseMs);
        else send();
      };
      socket.on('error', () => {
        failed += 1;
        finish();
      });
      socket.on('close', finish);
      // Ends a caller that is never connected or answered, so that the bench does not hang.
      setTimeout(() => {
        if (!isDone) failed += 1;
        finish();
      }, request.durationMs + 10_000).unref();
    });

  await Promise.all(Array.from({ length: request.connections }, caller));
  ok.sort((a, b) => a - b);
  refused.sort((a, b) => a - b);
  return {
    requests: ok.length,
    refused: refused.length,
    failed,
    seconds: request.durationMs / 1000,
    p50Micros: percentile(ok, 0.5),
    p99Micros: percentile(ok, 0.99),
    maxMicros: ok.at(-1) ?? 0,
    ...(refused.length > 0 ? { refusedP99Micros: percentile(refused, 0.99) } : {}),
  };
}

console.log(JSON.stringify(await generate(JSON.parse(process.argv[2] ?? '') as LoadRequest)));
