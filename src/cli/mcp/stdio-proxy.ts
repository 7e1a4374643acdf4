import { createInterface } from 'node:readline';
import { messageOf } from '../../core/error.ts';
import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { endsWithin } from '../../lib/deadline.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';

/** Requests that run at a time. Others wait in the pipe. */
const MAX_RUNNING = 64;
/** Time for the answers to requests that still run when the input ends. */
const LAST_ANSWERS_MS = 2000;
const PARSE_ERROR = -32_700;
const SERVER_ERROR = -32_000;
const VERSION_KEY = 'io.modelcontextprotocol/protocolVersion';

/** Passes MCP messages between stdin and stdout and the service, until the input ends. */
export async function proxyStdio(io: Io, options: ClientOptions): Promise<void> {
  await new StdioProxy(io, await Client.open(options, io)).run();
}

/** A proxy for one client. It reads only fields that headers repeat, so it serves every protocol version. */
export class StdioProxy {
  readonly #io: Io;
  readonly #client: Client;
  readonly #running = new Map<string, { readonly end: AbortController; readonly done: Promise<void> }>();
  /** Version of the handshake of older clients; `''`: there was none. */
  #version = '';
  #count = 0;

  constructor(io: Io, client: Client) {
    this.#io = io;
    this.#client = client;
  }

  async run(): Promise<void> {
    const lines = createInterface({ input: this.#io.stdin, crlfDelay: Number.POSITIVE_INFINITY });
    for await (const line of lines) {
      if (line.trim() === '') continue;
      const message = parse(line);
      if (message === undefined) this.#fail(null, PARSE_ERROR, 'the line is not JSON');
      else this.#start(message, line);
      while (this.#running.size >= MAX_RUNNING) await Promise.race([...this.#running.values()].map(({ done }) => done));
    }
    const left = [...this.#running.values()];
    await endsWithin(Promise.all(left.map(({ done }) => done)), LAST_ANSWERS_MS, this.#io.signal);
    for (const { end } of left) end.abort();
    await Promise.all(left.map(({ done }) => done));
  }

  #start(message: unknown, line: string): void {
    const cancelled = cancelledBy(message);
    if (cancelled !== null) {
      this.#running.get(cancelled)?.end.abort();
      return;
    }
    const end = new AbortController();
    const id = idOf(message);
    this.#count += 1;
    const key = id === null ? `notification ${this.#count}` : JSON.stringify(id);
    const done = this.#pass(message, line, end.signal)
      .catch((error: unknown) => {
        if (!end.signal.aborted) this.#fail(id, SERVER_ERROR, messageOf(error));
      })
      .finally(() => {
        if (this.#running.get(key)?.end === end) this.#running.delete(key);
      });
    this.#running.set(key, { end, done });
  }

  async #pass(message: unknown, line: string, signal: AbortSignal): Promise<void> {
    const headers = { accept: 'application/json, text/event-stream', ...this.#headersOf(message) };
    const answer = await this.#client.answer('POST', '/mcp', { body: line, headers, timeoutMs: null, signal });
    const text = await answer.read();
    const id = idOf(message);
    const replies = answer.type.startsWith('text/event-stream') ? dataOf(text) : text.trim() === '' ? [] : [text];
    for (const reply of replies) {
      const parsed = parse(reply);
      if (!isJsonObject(parsed) || parsed.jsonrpc === undefined) {
        const why = isJsonObject(parsed) && typeof parsed.message === 'string' ? parsed.message : reply.slice(0, 200);
        if (id !== null) this.#fail(id, SERVER_ERROR, `the service answered ${answer.status}: ${why}`);
        return;
      }
      this.#noteVersion(message, parsed);
      this.#write(parsed);
    }
  }

  /** Returns the headers that repeat parts of a message. */
  #headersOf(message: unknown): Record<string, string> {
    if (!isJsonObject(message)) return {};
    const params = isJsonObject(message.params) ? message.params : {};
    const meta = isJsonObject(params._meta) ? params._meta : {};
    const version = meta[VERSION_KEY];
    if (typeof version !== 'string') {
      return this.#version === '' || message.method === 'initialize' ? {} : { 'mcp-protocol-version': this.#version };
    }
    const { name, uri } = params;
    const named = typeof name === 'string' ? name : typeof uri === 'string' ? uri : null;
    return {
      'mcp-protocol-version': version,
      ...(typeof message.method === 'string' && { 'mcp-method': message.method }),
      ...(named !== null && { 'mcp-name': named }),
    };
  }

  #noteVersion(message: unknown, { result }: JsonObject): void {
    if (!isJsonObject(message) || message.method !== 'initialize' || !isJsonObject(result)) return;
    if (typeof result.protocolVersion === 'string') this.#version = result.protocolVersion;
  }

  #fail(id: unknown, code: number, message: string): void {
    this.#write({ jsonrpc: '2.0', id, error: { code, message } });
  }

  #write(message: JsonObject): void {
    this.#io.out.write(`${JSON.stringify(message)}\n`);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the id of a request. null: the message is a notification. */
function idOf(message: unknown): string | number | null {
  const id = isJsonObject(message) ? message.id : null;
  return typeof id === 'string' || typeof id === 'number' ? id : null;
}

/** Returns the key of the request that a message cancels, or null. */
function cancelledBy(message: unknown): string | null {
  if (!isJsonObject(message) || message.method !== 'notifications/cancelled' || !isJsonObject(message.params))
    return null;
  return JSON.stringify(message.params.requestId);
}

/** Returns the data of each event of a stream. */
function dataOf(text: string): readonly string[] {
  return text.split(/\r?\n\r?\n/).flatMap(block => {
    const lines = block.split(/\r?\n/).filter(line => line.startsWith('data:'));
    return lines.length === 0 ? [] : [lines.map(line => line.slice(5).trimStart()).join('\n')];
  });
}
