import { randomBytes } from 'node:crypto';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';
import { localPython } from './agent-create.ts';
import { Client, type ClientOptions } from './client.ts';
import { codeDirectory } from './code-archive.ts';
import { parseDurationMs } from './duration.ts';
import { CliError, EXIT, usageError } from './exit.ts';
import { expandName } from './function-name.ts';
import { functionPath } from './function-records.ts';
import { readJsonArgument } from './input.ts';
import { type Io, pump } from './io.ts';
import { callMeta } from './meta-call.ts';
import { coloured, prettyJson } from './print.ts';
import { type VariableOptions, variablesOf } from './variables.ts';
import { watchTree } from './watch-tree.ts';

interface DevOptions extends ClientOptions, VariableOptions {
  readonly handler: string;
  readonly initializer?: string;
  readonly runtime?: string;
  readonly name?: string;
  readonly data?: string;
  readonly cpu: string;
  readonly memory: string;
  readonly timeout: string;
}

/** Editors write a file in several steps. */
const SETTLE_MS = 150;
const END_TIMEOUT_MS = 30_000;
/** Files that change by themselves or are nobody's code: caches, hidden files, leftovers of editors. */
const IGNORED = /(^|\/)(\.|#|__pycache__|node_modules)|(~|\.pyc)$/;

/** `function dev`: registers, watches, calls and prints until it is asked to end, then deletes. */
export async function develop(io: Io, dir: string, options: DevOptions): Promise<void> {
  const directory = await codeDirectory(dir);
  const event = options.data === undefined ? null : await readJsonArgument(io, options.data);
  const over = new AbortController();
  const end = () => over.abort();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, end);
  io.signal.addEventListener('abort', end, { once: true });
  const devIo: Io = { ...io, signal: over.signal };
  const client = await Client.open(options, devIo);
  const dev = await DevFunction.register(devIo, client, directory, options);
  try {
    dev.say(`${dev.urn} is served from ${directory}. Ctrl-C ends and deletes it.`);
    await dev.run(event);
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, end);
    // The signal that ended it would end this request too.
    const last = await Client.open(options, { ...io, signal: AbortSignal.timeout(END_TIMEOUT_MS) });
    await callMeta(last, 'DELETE', `/functions/${encodeURIComponent(dev.name)}`);
    dev.say(`${dev.name} is deleted.`);
  }
}

class DevFunction {
  readonly name: string;
  readonly urn: string;
  readonly #io: Io;
  readonly #client: Client;
  readonly #directory: string;
  #revisionId: string;
  /** Calls and reloads, one after another. */
  #work: Promise<void> = Promise.resolve();

  private constructor(io: Io, client: Client, directory: string, record: Record<string, unknown>) {
    this.#io = io;
    this.#client = client;
    this.#directory = directory;
    this.name = String(record.name);
    this.urn = String(record.functionVersionUrn);
    this.#revisionId = String(record.revisionId);
  }

  static async register(io: Io, client: Client, directory: string, options: DevOptions): Promise<DevFunction> {
    const { function: record } = await callMeta(client, 'POST', '/functions', {
      name: options.name === undefined ? newName(directory) : expandName(options.name),
      kind: 'faas',
      runtime: options.runtime ?? (await localPython(client.addresses.frontend)),
      handler: options.handler,
      ...(options.initializer === undefined ? {} : { extendedHandler: { initializer: options.initializer } }),
      cpu: readWhole(options.cpu, '--cpu'),
      memory: readWhole(options.memory, '--memory'),
      timeout: Math.max(1, Math.ceil(parseDurationMs(options.timeout, '--timeout') / 1000)),
      environment: variablesOf(options) ?? {},
      storageType: 'local',
      codePath: directory,
    });
    return new DevFunction(io, client, directory, record as Record<string, unknown>);
  }

  /** Until the signal of the command. Fails when the service cannot be reached any more. */
  async run(event: string | null): Promise<void> {
    const { signal } = this.#io;
    const watcher = this.#watch(event);
    const lines = createInterface({ input: this.#io.stdin });
    lines.on('line', line => {
      if (line.trim() !== '') this.#queue(() => this.#call(line));
    });
    try {
      const logs = await this.#client.stream('GET', functionPath(this.urn, 'logs?follow=true'));
      if (event !== null) this.#queue(() => this.#call(event));
      await pump(logs, this.#io.out, signal);
      if (!signal.aborted) throw new Error('the service ended it');
    } catch (error) {
      if (!signal.aborted) throw new CliError(`The connection broke (${(error as Error).message}).`, EXIT.unreachable);
    } finally {
      watcher.close();
      lines.close();
      await this.#work;
    }
  }

  say(text: string): void {
    this.#io.err.write(`${coloured(this.#io, this.#io.err, 'grey', text)}\n`);
  }

  #watch(event: string | null): { close(): void } {
    let settled: NodeJS.Timeout | undefined;
    const changed = (file: string) => {
      clearTimeout(settled);
      settled = setTimeout(() => {
        this.say(`${file} changed: fresh instances from now on.`);
        this.#queue(() => this.#reload());
        if (event !== null) this.#queue(() => this.#call(event));
      }, SETTLE_MS);
    };
    const failed = (error: Error) => this.say(`Not everything in ${this.#directory} is watched: ${error.message}`);
    const watching = watchTree(this.#directory, path => IGNORED.test(path), changed, failed);
    return {
      close() {
        clearTimeout(settled);
        watching.close();
      },
    };
  }

  #queue(work: () => Promise<void>): void {
    this.#work = this.#work.then(async () => {
      if (this.#io.signal.aborted) return;
      await work().catch((error: unknown) => {
        if (!this.#io.signal.aborted)
          this.#io.err.write(`${coloured(this.#io, this.#io.err, 'red', (error as Error).message)}\n`);
      });
    });
  }

  /** An update that changes nothing but the revision: the instances of the one before drain. */
  async #reload(): Promise<void> {
    const path = `/functions/${encodeURIComponent(this.name)}`;
    const answer = await callMeta(this.#client, 'PUT', path, { revisionId: this.#revisionId });
    this.#revisionId = String((answer.function as { revisionId: unknown }).revisionId);
  }

  async #call(event: string): Promise<void> {
    const startMs = performance.now();
    const path = functionPath(this.urn, 'invocations');
    const text = await this.#client.text('POST', path, { body: event, timeoutMs: null });
    this.#io.out.write(`${prettyJson(text, this.#io.out.isTerminal)}\n`);
    this.say(`${Math.round(performance.now() - startMs)} ms`);
  }
}

function readWhole(text: string, flag: string): number {
  if (!/^\d{1,12}$/.test(text)) throw usageError(`${flag} must be a whole number, not ${JSON.stringify(text)}.`);
  return Number(text);
}

function newName(directory: string): string {
  const name = basename(directory)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-');
  return `0@dev@${name.slice(0, 100) || 'function'}-${randomBytes(3).toString('hex')}`;
}
