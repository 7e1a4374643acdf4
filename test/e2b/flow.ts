import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, test } from 'vitest';
import { describeWith, type Part } from '../probe.ts';
import { E2bService } from './e2b-service.ts';
import { type Environment, e2bPackages } from './environments.ts';

const FLOWS = join(import.meta.dirname, 'flows');
/** Start of a line with a result or a request; other lines are output of the flow. */
const MARK = '\x1e';
/** Time limit of a test, which includes the checks before it. */
const TIMEOUT_MS = 180_000;

export interface Flow {
  /** File below `flows/` with the checks. */
  readonly file: string;
  readonly environment: Environment;
  /** Arguments of the service. */
  readonly args?: readonly string[];
  /** Returns further arguments, which a part that is started first decides. */
  readonly serviceArgs?: () => Promise<readonly string[]>;
  /** Timeout of the start of the parts that `serviceArgs` starts. Default: that of hooks. */
  readonly startMs?: number;
  /** Parts that it needs in addition to those of all flows. */
  readonly parts?: readonly Part[];
  /** Returns additional environment variables of the flow. */
  readonly env?: (service: E2bService) => Promise<Readonly<Record<string, string>>>;
}

/** A result that a test may wait for before it arrives. */
class Pending {
  resolve: (result: Result) => void = () => undefined;
  readonly promise = new Promise<Result>(resolve => {
    this.resolve = resolve;
  });
}

interface Result {
  readonly title: string;
  /** Traceback of the failure, or `''`. */
  readonly error: string;
}

/**
 * Registers a suite that runs a flow of an SDK against a service, with a test for each check of the flow.
 */
export function describeFlow(title: string, flow: Flow): void {
  describeWith(['e2b', 'root', 'namespaces', ...(flow.parts ?? [])], title, () => {
    let service: E2bService;
    let running: RunningFlow;
    beforeAll(async () => {
      service = await E2bService.start([...(flow.args ?? []), ...((await flow.serviceArgs?.()) ?? [])]);
      running = new RunningFlow(flow, service, { ...service.sdkEnvironment, ...(await flow.env?.(service)) });
    }, flow.startMs);
    afterAll(async () => {
      await running?.end();
      await service?.remove();
    });
    for (const check of titlesOf(flow.file)) {
      test(check, { timeout: TIMEOUT_MS }, async () => {
        const { error } = await running.resultOf(check);
        if (error !== '') throw new Error(`${error}\n${running.output}\n${service.output}`);
      });
    }
  });
}

/** Returns the titles of the checks of a flow, which are literals in its source. */
function titlesOf(file: string): readonly string[] {
  const source = readFileSync(join(FLOWS, file), 'utf8');
  return [...source.matchAll(/^@?check\(\s*(["'])(.*?)\1/gm)].map(([, , title = '']) => title);
}

/** A program with checks, whose results arrive while it runs. */
class RunningFlow {
  readonly #child: ChildProcess;
  readonly #results = new Map<string, Pending>();
  readonly #lines: string[] = [];
  readonly #closed: Promise<unknown>;

  constructor({ file, environment }: Flow, service: E2bService, env: Readonly<Record<string, string>>) {
    for (const title of titlesOf(file)) this.#results.set(title, new Pending());
    const [program, args] = commandOf(file, environment);
    this.#child = spawn(program, args, { env: { ...ownEnvironment(), ...env }, stdio: 'pipe' });
    this.#closed = once(this.#child, 'close').then(([code]) => this.#failOpen(`the flow ended with ${code}`));
    this.#child.on('error', error => this.#failOpen(String(error)));
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      if (stream !== null) createInterface({ input: stream }).on('line', line => void this.#read(line, service));
    }
  }

  get output(): string {
    return this.#lines.join('\n');
  }

  async resultOf(title: string): Promise<Result> {
    const result = this.#results.get(title);
    if (result === undefined) throw new Error(`the flow has no check "${title}"`);
    return await result.promise;
  }

  async end(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#closed;
  }

  async #read(line: string, service: E2bService): Promise<void> {
    const start = line.indexOf(MARK);
    if (start < 0) {
      this.#lines.push(line);
      return;
    }
    const message = JSON.parse(line.slice(start + MARK.length)) as Result | { readonly ask: string };
    if (!('ask' in message)) return this.#results.get(message.title)?.resolve(message);
    const answer = await service.act(message.ask).then(
      () => 'done',
      (error: unknown) => String(error),
    );
    this.#child.stdin?.write(`${JSON.stringify(answer)}\n`);
  }

  #failOpen(why: string): void {
    for (const [title, result] of this.#results) result.resolve({ title, error: `${why} before this check` });
  }
}

function commandOf(file: string, environment: Environment): [program: string, args: readonly string[]] {
  const path = join(FLOWS, file);
  if (!e2bPackages.isNode(environment)) return [join(e2bPackages.homeOf(environment), 'bin/python'), ['-B', path]];
  // A module finds packages only above its own directory: `packages.mjs` makes those of `home` known.
  return [process.execPath, ['--import', join(FLOWS, 'packages.mjs'), path, e2bPackages.homeOf(environment)]];
}

/** Returns the environment without settings of Rookery and of E2B, which would change the flow. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(ROOKERY|E2B)_/.test(name)));
}
