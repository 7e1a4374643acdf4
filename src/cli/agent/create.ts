import { resolve } from 'node:path';
import { isCodeUrl } from '../../core/code-package.ts';
import { installerOf } from '../../core/dependencies.ts';
import { runsImages } from '../../core/sandbox-types.ts';
import { agentArguments } from '../../explain/agent.ts';
import { asksForDependencies, type DependencyOptions, installDependencies } from '../code/dependencies.ts';
import { runtimeOf } from '../code/runtime.ts';
import { codeDirectory, mustUpload, type UploadOptions, uploadCode } from '../code/upload.ts';
import { type VariableOptions, variablesOf } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import { readRequestFile } from '../shared/input.ts';
import type { Io } from '../shared/io.ts';
import { coloured, printable, printJson, withSpinner } from '../shared/print.ts';
import { parseCpuMillis, parseMemoryMb } from '../shared/units.ts';
import { type LifetimeOptions, lifetimeFields } from './lifetime.ts';
import { type Agent, addressFor, parseExpose, tellLoadError } from './records.ts';

export interface CreateOptions
  extends ClientOptions,
    DependencyOptions,
    LifetimeOptions,
    UploadOptions,
    VariableOptions {
  readonly file?: string;
  readonly restart?: string;
  readonly namespace: string;
  readonly code?: string;
  readonly handler?: string;
  readonly initializer?: string;
  readonly preStop?: string;
  readonly alarm?: string;
  readonly sleepEntry?: string;
  readonly runtime?: string;
  readonly httpProfile?: string;
  readonly codePath: string;
  readonly mount?: readonly string[];
  readonly workspace?: string;
  readonly sandbox?: string;
  readonly image: string;
  readonly user?: string;
  readonly publish?: readonly string[];
  readonly expose?: string;
  readonly cpu?: string;
  readonly memory?: string;
  readonly urn?: string;
  readonly idempotencyKey?: string;
  readonly replace?: boolean;
  readonly json?: boolean;
}

/** Creates an agent. Returns the exit code. */
export async function createAgent(io: Io, name: string | undefined, options: CreateOptions): Promise<number> {
  const client = await Client.open(options, io);
  const body =
    options.file === undefined
      ? await bodyFromFlags(
          name,
          options,
          async () =>
            options.httpProfile === undefined
              ? await runtimeOf(options.code, options.handler, client.addresses.frontend)
              : 'http',
          code => (mustUpload(client, options) ? uploadCode(io, client, code) : codeDirectory(code)),
        )
      : await bodyFromFile(io, options.file, name);
  if (options.replace === true) body.replace = true;
  if (options.file === undefined) await withDependencies(io, client, body, options);
  const headers = options.idempotencyKey === undefined ? {} : { 'idempotency-key': options.idempotencyKey };
  const startedAt = performance.now();
  const answer = await withSpinner(io, 'creating the agent', () =>
    client
      .json('POST', '/api/agent', { body: JSON.stringify(body), headers, timeoutMs: null })
      .catch((error: unknown) => explainTaken(options.file === undefined ? withFlags(error) : error, body)),
  );
  const elapsedMs = Math.round(performance.now() - startedAt);
  const id = String(answer.instance_id);
  if (options.json === true) {
    printJson(io, answer);
    return tellLoadError(io, client, id);
  }
  io.out.write(`${id}\n`);
  const exitCode = await tellLoadError(io, client, id);
  if (body.expose !== undefined) await printAddress(io, client, id);
  if (exitCode === EXIT.ok && io.err.isTerminal && io.out.isTerminal) {
    const called = agentArguments(String(body.name), String(body.namespace));
    io.err.write(
      `${coloured(io, io.err, 'green', 'created')} in ${elapsedMs} ms. Call it: rookery agent invoke ${called} '{}'\n`,
    );
  }
  return exitCode;
}

/** Adds advice to the error that the name is taken, for example after a create whose code did not load. */
function explainTaken(error: unknown, { namespace, name, replace }: Record<string, unknown>): never {
  if (!(error instanceof CliError) || error.status !== 409 || replace === true || !TAKEN.test(error.message))
    throw error;
  const command = `rookery agent rm ${agentArguments(String(name), String(namespace))}`;
  const advice = `The same command with --replace puts this one in its place; ${command} removes it.`;
  throw new CliError(`${error.message}. ${advice}`, error.exitCode, error.status);
}

const TAKEN = /^failed to create agent: agent .* already exists$/s;

/** Prints the address on stderr, because programs read the id from stdout. */
async function printAddress(io: Io, client: Client, id: string): Promise<void> {
  const { instance } = await client.json('GET', `/api/agent/${encodeURIComponent(id)}`);
  const { expose } = instance as Agent;
  if (expose) io.err.write(`address: ${printable(addressFor(client, expose))}\n`);
}

/** Requests the installation of the code's dependencies, once the code is available. */
async function withDependencies(
  io: Io,
  client: Client,
  body: Record<string, unknown>,
  options: CreateOptions,
): Promise<void> {
  const spec = body.runtime_spec as Record<string, unknown> | undefined;
  const [code] = body.mounts as readonly { readonly source: string }[];
  if (options.code === undefined || spec === undefined || code === undefined) return;
  const runtime = String(spec.runtime);
  const asks = asksForDependencies(options.code, runtime, options);
  if (asks) await installDependencies(io, client, code.source, runtime, options.sandbox);
  // A restart reads a directory of the host again; uploaded code never changes.
  const mayAskLater = options.dependencies !== false && installerOf(runtime) !== null && !isCodeUrl(code.source);
  if (asks || mayAskLater) spec.dependencies = 'auto';
}

/**
 * Builds the request from the flags. `defaultRuntime` is called only when needed; `sourceOf` returns the
 * mount source of the code.
 */
export async function bodyFromFlags(
  name: string | undefined,
  options: CreateOptions,
  defaultRuntime: () => Promise<string>,
  sourceOf: (code: string) => Promise<string> = codeDirectory,
): Promise<Record<string, unknown>> {
  if (name === undefined)
    throw usageError('The agent needs a name: rookery agent create <name> --code <dir> --handler <module.function>.');
  if (isOfImage(options.sandbox) && options.image === HOST_FILES) throw missingImage(String(options.sandbox));
  const mounts = (options.mount ?? []).map(parseMount);
  if (options.code !== undefined) await codeDirectory(options.code);
  const runtime = options.urn === undefined ? (options.runtime ?? (await defaultRuntime())) : '';
  if (options.urn === undefined) checkHandler(options.code, options.handler, runtime);
  if (options.code !== undefined) {
    mounts.unshift({ source: await sourceOf(options.code), target: options.codePath, readonly: true });
  }
  const common = {
    namespace: options.namespace,
    name,
    ...(options.workspace === undefined ? {} : { workspace: resolve(options.workspace) }),
    env_vars: variablesOf(options) ?? {},
    ...(options.restart === undefined ? {} : { restart_policy: parseRestart(options.restart) }),
    mounts,
    ...lifetimeFields(options),
    ...(options.expose === undefined ? {} : { expose: parseExpose(options.expose) }),
  };
  if (options.urn !== undefined) {
    const extra = (['code', 'handler', 'runtime'] as const).find(flag => options[flag] !== undefined);
    if (extra !== undefined)
      throw usageError(`--urn takes everything from the registered function: leave --${extra} out.`);
    return { ...common, urn: options.urn };
  }
  const extendedHandler = {
    ...(options.initializer === undefined ? {} : { initializer: options.initializer }),
    ...(options.preStop === undefined ? {} : { pre_stop: options.preStop }),
    ...(options.alarm === undefined ? {} : { alarm: options.alarm }),
    ...(options.sleepEntry === undefined ? {} : { sleep: options.sleepEntry }),
  };
  return {
    ...common,
    runtime_spec: {
      runtime,
      ...(options.sandbox === undefined ? {} : { sandbox_type: options.sandbox }),
      codePath: options.codePath,
      ...(options.handler === undefined ? {} : { handler: options.handler }),
      ...(options.httpProfile === undefined ? {} : { httpProfile: options.httpProfile }),
      ...(Object.keys(extendedHandler).length === 0 ? {} : { extendedHandler }),
      rootfs: {
        imageurl: options.image,
        ...(options.user === undefined ? {} : { user: options.user }),
        ...(options.publish === undefined ? {} : { ports: options.publish }),
      },
      ...(options.cpu === undefined ? {} : { cpu: parseCpuMillis(options.cpu) }),
      ...(options.memory === undefined ? {} : { memory: parseMemoryMb(options.memory) }),
    },
  };
}

const FLAGS: Readonly<Record<string, string>> = {
  'runtime_spec.cpu': '--cpu',
  'runtime_spec.memory': '--memory',
  'runtime_spec.handler': '--handler',
  'runtime_spec.runtime': '--runtime',
  'runtime_spec.httpProfile': '--http-profile',
  'runtime_spec.sandbox_type': '--sandbox',
  'runtime_spec.codePath': '--code-path',
  'runtime_spec.rootfs.imageurl': '--image',
  'runtime_spec.rootfs.user': '--user',
};

/** Replaces the fields of the request in an error by the flags that set them. */
function withFlags(error: unknown): unknown {
  if (!(error instanceof CliError)) return error;
  const text = error.message.replace(/\bruntime_spec(?:\.\w+)+/g, field => FLAGS[field] ?? field);
  return new CliError(flagSentence(text), error.exitCode, error.status, error.traceId);
}

const UNITS: Readonly<Record<string, string>> = { cpu: 'millicores', memory: 'MB' };

/** Adds the unit to a bound of a flag, and removes the part that only API callers need. */
export function flagSentence(text: string): string {
  return text
    .replace(
      /^invalid request body: --(cpu|memory) must be between (\d+) and (\d+), got (.*)$/s,
      (_, flag: string, least: string, most: string, given: string) =>
        `--${flag} must be between ${least} and ${most} ${UNITS[flag]}, not ${given}.`,
    )
    .replace(/^invalid request body: (?=--)/, '');
}

/**
 * Checks the handler of Python and Node, which load a function of a module. The service checks other
 * runtimes.
 */
export function checkHandler(code: string | undefined, handler: string | undefined, runtime: string): void {
  if (!/^(?:python|nodejs)/.test(runtime)) return;
  const example = runtime.startsWith('python') ? 'app.handle' : 'index.handle';
  if (handler === undefined && code !== undefined) {
    throw usageError(`Give --handler module.function, for example --handler ${example}: it is what each call runs.`);
  }
  if (handler !== undefined && !/[^.]\.[^.]/.test(handler)) {
    throw usageError(`--handler must be module.function, for example ${example}, not ${JSON.stringify(handler)}.`);
  }
}

/** The default of --image: no image, the files of the host. */
const HOST_FILES = 'host';

export function isOfImage(sandbox: string | undefined): boolean {
  return sandbox !== undefined && runsImages(sandbox);
}

export function missingImage(sandbox: string): CliError {
  return usageError(`--sandbox ${sandbox} needs an image: --image python:3.11-slim, or any that has the runtime.`);
}

async function bodyFromFile(io: Io, file: string, name: string | undefined): Promise<Record<string, unknown>> {
  const body = await readRequestFile(io, file);
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw usageError(`${file} must hold one request: a map with namespace, name and runtime_spec or urn.`);
  }
  return name === undefined ? { ...body } : { ...body, name };
}

/** Parses `src:dst`, `src:dst:ro` or `src:dst:rw`. A relative source starts at the working directory. */
export function parseMount(text: string): { source: string; target: string; readonly: boolean } {
  const match = /^([^:]+):([^:]+)(?::(ro|rw))?$/.exec(text);
  if (match === null)
    throw usageError(`--mount must be source:target or source:target:ro, not ${JSON.stringify(text)}.`);
  const [, source = '', target = '', mode] = match;
  return { source: resolve(source), target, readonly: mode === 'ro' };
}

/**
 * Parses `never`, `on-failure` or `always`, with an optional number of consecutive restarts: `on-failure:3`.
 */
export function parseRestart(text: string): object {
  const match = /^(never|on-failure|always)(?::(\d{1,4}))?$/.exec(text);
  if (match === null)
    throw usageError(
      `--restart must be never, on-failure, always, or one with a number: on-failure:3; not ${JSON.stringify(text)}.`,
    );
  const [, policy, most] = match;
  return { policy, ...(most === undefined ? {} : { max_restarts: Number(most) }) };
}
