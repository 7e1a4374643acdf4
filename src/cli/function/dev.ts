import { randomBytes } from 'node:crypto';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { runtimeOf } from '../code/runtime.ts';
import { codeDirectory } from '../code/upload.ts';
import { watchTree } from '../code/watch-tree.ts';
import { type VariableOptions, variablesOf } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import { readJsonArgument } from '../shared/input.ts';
import { type Io, pump } from '../shared/io.ts';
import { parseFault } from '../shared/parse-check.ts';
import { coloured, prettyJson, printError } from '../shared/print.ts';
import { parseCpuMillis, parseDurationMs, parseMemoryMb } from '../shared/units.ts';
import { callMeta } from './meta-call.ts';
import { expandName, functionPath } from './records.ts';

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
/** Files that change on their own or are not code: caches, hidden files, temporary files of editors. */
const IGNORED = /(^|\/)(\.|#|__pycache__|node_modules)|(~|\.pyc)$/;

/**
 * Runs `function dev`: registers, watches, calls and prints until a signal ends it, then deletes the
 * function.
 */
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
    // The signal that ended the command would also abort this request.
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
  /** Calls and reloads, which run in sequence. */
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
      runtime: options.runtime ?? (await runtimeOf(directory, options.handler, client.addresses.frontend)),
      handler: options.handler,
      ...(options.initializer === undefined ? {} : { extendedHandler: { initializer: options.initializer } }),
      cpu: parseCpuMillis(options.cpu),
      memory: parseMemoryMb(options.memory),
      timeout: Math.max(1, Math.ceil(parseDurationMs(options.timeout, '--timeout') / 1000)),
      environment: variablesOf(options) ?? {},
      storageType: 'local',
      codePath: directory,
    });
    return new DevFunction(io, client, directory, record as Record<string, unknown>);
  }

  /** Runs until the signal of the command. Fails when the service becomes unreachable. */
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
        this.#queue(() => this.#change(file, event));
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
        if (!this.#io.signal.aborted) printError(this.#io, (error as Error).message, 'red');
      });
    });
  }

  /** Reloads the code. Reports a syntax error at once, which otherwise only the next call would show. */
  async #change(file: string, event: string | null): Promise<void> {
    const fault = await parseFault(join(this.#directory, file));
    if (fault === null) this.say(`${file} changed: fresh instances from now on.`);
    else printError(this.#io, `${file} changed, and does not parse: ${fault}`, 'red');
    await this.#reload();
    if (event !== null) await this.#call(event);
  }

  /** Makes an update that changes only the revision, so that instances of the previous one drain. */
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

function newName(directory: string): string {
  const name = basename(directory)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-');
  return `0@dev@${name.slice(0, 100) || 'function'}-${randomBytes(3).toString('hex')}`;
}
