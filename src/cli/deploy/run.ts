import { basename, relative, resolve } from 'node:path';
import { OF_EDITORS } from '../../../clients/typescript/src/code-archive.ts';
import type { Style } from '../../lib/ansi.ts';
import { asksForDependencies, installDependencies } from '../code/dependencies.ts';
import { nameOfCode, uploadCode, type What } from '../code/upload.ts';
import { watchTree } from '../code/watch-tree.ts';
import { nameOfDirectory, uploadDirectory } from '../job/submit.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { coloured, printable, printError, printJson, printWarning, withSpinner } from '../shared/print.ts';
import { planAgent } from './agents.ts';
import { type Deployment, readDeployment } from './file.ts';
import { planFunction } from './functions.ts';
import { planJob } from './jobs.ts';
import { type Action, missingSecrets, type Planning, planPool, type Step } from './step.ts';

export interface DeployOptions extends ClientOptions {
  readonly file: string;
  readonly dryRun?: boolean;
  readonly watch?: boolean;
  readonly rerunFailed?: boolean;
  readonly json?: boolean;
}

export interface DiffOptions extends ClientOptions {
  readonly file: string;
  readonly exitCode?: boolean;
  readonly json?: boolean;
}

type Words = Readonly<Record<Line['action'], string>>;

const STYLES: { readonly [action in Line['action']]?: Style } = {
  failed: 'red',
  unknown: 'yellow',
  unchanged: 'grey',
};
const ALWAYS = { unchanged: 'unchanged', unknown: 'not known', failed: 'failed' };
const DONE: Words = { ...ALWAYS, create: 'created', update: 'updated', replace: 'replaced' };
const WOULD: Words = { ...ALWAYS, create: 'to be created', update: 'to be updated', replace: 'to be replaced' };
const NOT_SHOWN = 'its environment is not compared, since a viewer is not shown the values';

interface Line {
  readonly kind: Step['kind'];
  readonly name: string;
  readonly action: Action | 'unknown' | 'failed';
  readonly changes: readonly string[];
  readonly detail: string;
  readonly isFailed?: true;
}

type Acted = Omit<Line, 'isFailed'> & Pick<Step, 'isFailed'>;

/** Deploys the file. Returns the exit code: 1 if a part of the file failed. */
export async function deploy(io: Io, options: DeployOptions): Promise<number> {
  if (options.dryRun === true) return await diff(io, options);
  const client = await Client.open(options, io);
  if (options.watch !== true) return await deployOnce(io, client, options);
  await watchAndDeploy(io, client, options);
  return EXIT.ok;
}

/** Compares the file with the service without changing or uploading anything. */
export async function diff(io: Io, options: DiffOptions): Promise<number> {
  const client = await Client.open(options, io);
  const deployment = await readDeployment(io, options.file);
  const missing = await missingSecrets(client, deployment);
  if (missing !== null) printWarning(io, missing);
  const what = whatOf(deployment);
  const planning: Planning = {
    ...{ client, deployment, rerunsFailed: false },
    codeUrl: code => nameOfCode(io, resolve(deployment.directory, code), what),
    asks: asksIn(deployment),
    install: async () => undefined,
    jobDirectory: code => nameOfDirectory(io, resolve(deployment.directory, code), what),
  };
  const lines = await eachOf(io, planning, options, async step => ({ ...step, ...compared(step) }), WOULD);
  if (lines.some(({ action }) => action === 'failed')) return EXIT.failure;
  const isSame = lines.every(({ action }) => action === 'unchanged' || action === 'unknown');
  const isKnown = lines.every(({ action }) => action !== 'unknown');
  if (options.json !== true && isSame)
    io.out.write(`Nothing would change${isKnown ? '' : ', as far as a viewer is shown'}.\n`);
  return options.exitCode === true && !isSame ? EXIT.failure : EXIT.ok;
}

/** Returns the line of a step that is not applied. */
function compared({ action, changes, hidden = [] }: Step): Pick<Line, 'action' | 'detail'> {
  if (hidden.length === 0) return { action, detail: '' };
  return { action: changes.length === 0 ? 'unknown' : action, detail: NOT_SHOWN };
}

async function deployOnce(io: Io, client: Client, options: DeployOptions): Promise<number> {
  const deployment = await readDeployment(io, options.file);
  const missing = await missingSecrets(client, deployment);
  if (missing !== null) throw new CliError(missing);
  const what = whatOf(deployment);
  const urls = new Map<string, Promise<string>>();
  const planning: Planning = {
    ...{ client, deployment, rerunsFailed: options.rerunFailed === true },
    codeUrl(code) {
      const directory = resolve(deployment.directory, code);
      const url = urls.get(directory) ?? uploadCode(io, client, directory, what);
      urls.set(directory, url);
      return url;
    },
    asks: asksIn(deployment),
    install: (code, url) => installDependencies(io, client, url, code.runtime, code.sandbox),
    jobDirectory: code => uploadDirectory(io, client, resolve(deployment.directory, code), what),
  };
  const apply = async (step: Step) => {
    await step.prepare?.();
    const changes = [...step.changes, ...(step.hidden ?? [])];
    return { ...step, changes, detail: await withSpinner(io, `${step.kind} ${step.name}`, () => step.apply()) };
  };
  const lines = await eachOf(io, planning, options, apply, DONE);
  if (lines.some(({ action, isFailed }) => action === 'failed' || isFailed)) return EXIT.failure;
  if (options.json !== true && lines.every(({ action }) => action === 'unchanged'))
    io.out.write('Nothing has changed.\n');
  return EXIT.ok;
}

function asksIn({ directory }: Deployment): Planning['asks'] {
  return ({ code, runtime, dependencies }) =>
    asksForDependencies(resolve(directory, code), runtime, { dependencies: dependencies === 'auto' });
}

/** Omits the file itself from the code, so that a change of the file does not change the code. */
function whatOf({ file }: Deployment): What {
  return { flag: 'code', leftOut: file };
}

/**
 * Runs the steps in sequence and prints a line for each. A failed step does not stop the others, but an
 * unreachable service does.
 */
async function eachOf(
  io: Io,
  planning: Planning,
  { json }: { readonly json?: boolean },
  act: (step: Step) => Promise<Acted>,
  words: Words,
): Promise<readonly Line[]> {
  const lines: Line[] = [];
  for (const { kind, name: given, plan } of plansOf(planning)) {
    const name = kind === 'agent' ? agentName(planning, given) : given;
    let line: Line;
    try {
      const { name: whole, action, changes, detail, isFailed } = await act(await plan());
      line = { kind, name: whole, action, changes, detail, ...(isFailed === true && { isFailed }) };
    } catch (error) {
      if (!(error instanceof CliError) || error.exitCode === EXIT.unreachable || error.exitCode === EXIT.refused)
        throw error;
      line = { kind, name, action: 'failed', changes: [], detail: error.message };
    }
    lines.push(line);
    if (json !== true) print(io, line, words);
  }
  if (json === true) printJson(io, { resources: lines });
  return lines;
}

/** Returns the name with its namespace, for the lines of a deploy. */
function agentName({ deployment }: Planning, name: string): string {
  return `${deployment.agents[name]?.namespace ?? deployment.namespace}/${name}`;
}

/** Returns the plans in the order of their dependencies. */
function plansOf(planning: Planning) {
  const { pools, functions, agents, jobs } = planning.deployment;
  const of = <T>(
    kind: Step['kind'],
    all: Readonly<Record<string, T>>,
    plan: (p: Planning, n: string, t: T) => Promise<Step>,
  ) => Object.entries(all).map(([name, each]) => ({ kind, name, plan: () => plan(planning, name, each) }));
  return [
    ...of('pool', pools, planPool),
    ...of('function', functions, planFunction),
    ...of('agent', agents, planAgent),
    ...of('job', jobs, planJob),
  ];
}

function print(io: Io, { kind, name, action, changes, detail }: Line, words: Words): void {
  const style = STYLES[action] ?? 'green';
  const changed = changes.length === 0 ? '' : ` (${changes.join(', ')})`;
  const rest = `${changed}${detail === '' ? '' : `: ${detail}`}`;
  io.out.write(`${printable(`${kind} ${name}`)}: ${coloured(io, io.out, style, words[action])}${printable(rest)}\n`);
}

/** Editors write a file in several steps. */
const SETTLE_MS = 200;
const IGNORED = /(^|\/)(\.git|\.venv|__pycache__|node_modules)(\/|$)|\.pyc$/;

/**
 * Deploys, and again after each change, until Ctrl-C. Fails as the first deploy does. Reports a later deploy
 * that fails; the next change retries. The watch begins first, so that no change during a deploy is missed.
 */
async function watchAndDeploy(io: Io, client: Client, options: DeployOptions): Promise<void> {
  const { directory } = await readDeployment(io, options.file);
  let timer: NodeJS.Timeout | undefined;
  const report = (error: unknown) => printError(io, error instanceof Error ? error.message : String(error));
  const first = deployOnce(io, client, options);
  let work: Promise<unknown> = first.catch(() => undefined);
  const watching = watchTree(
    directory,
    path => IGNORED.test(path) || OF_EDITORS.test(basename(path)),
    () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        work = work.then(async () => {
          if (!io.signal.aborted) await deployOnce(io, client, options).catch(report);
        });
      }, SETTLE_MS);
    },
    report,
  );
  try {
    await first;
    io.err.write(`Watching ${relative('', directory) || '.'}. Ctrl-C ends it; what was deployed stays.\n`);
    await new Promise<void>(resolve => {
      if (io.signal.aborted) resolve();
      else io.signal.addEventListener('abort', () => resolve(), { once: true });
    });
  } finally {
    clearTimeout(timer);
    watching.close();
  }
  await work;
}
