import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { runsImages } from '../core/sandbox-types.ts';
import { tellLoadError } from './agent-records.ts';
import { Client, type ClientOptions } from './client.ts';
import { codeDirectory } from './code-archive.ts';
import { mustUpload, type UploadOptions, uploadCode } from './code-upload.ts';
import { asksForDependencies, type DependencyOptions, installDependencies } from './dependencies.ts';
import { CliError, EXIT, usageError } from './exit.ts';
import type { Io } from './io.ts';
import { parseExpose } from './open.ts';
import { coloured, printJson, withSpinner } from './print.ts';
import { readRequestFile } from './request-file.ts';
import { type VariableOptions, variablesOf } from './variables.ts';

export interface CreateOptions extends ClientOptions, DependencyOptions, UploadOptions, VariableOptions {
  readonly file?: string;
  readonly restart?: string;
  readonly namespace: string;
  readonly code?: string;
  readonly handler?: string;
  readonly initializer?: string;
  readonly preStop?: string;
  readonly runtime?: string;
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
  readonly json?: boolean;
}

/** Answers the exit code. */
export async function createAgent(io: Io, name: string | undefined, options: CreateOptions): Promise<number> {
  const client = await Client.open(options, io);
  const body =
    options.file === undefined
      ? await bodyFromFlags(
          name,
          options,
          () => localPython(client.addresses.frontend),
          code => (mustUpload(client, options) ? uploadCode(io, client, code) : codeDirectory(code)),
        )
      : await bodyFromFile(io, options.file, name);
  if (options.file === undefined) await withDependencies(io, client, body, options);
  const headers = options.idempotencyKey === undefined ? {} : { 'idempotency-key': options.idempotencyKey };
  const startedAt = performance.now();
  const answer = await withSpinner(io, 'creating the agent', () =>
    client.json('POST', '/api/agent', { body: JSON.stringify(body), headers, timeoutMs: null }),
  );
  const elapsedMs = Math.round(performance.now() - startedAt);
  const id = String(answer.instance_id);
  if (options.json === true) {
    printJson(io, answer);
    return tellLoadError(io, client, id);
  }
  io.out.write(`${id}\n`);
  const exitCode = await tellLoadError(io, client, id);
  if (exitCode === EXIT.ok && io.err.isTerminal && io.out.isTerminal) {
    const called = String(body.name);
    const where = body.namespace === 'default' ? '' : ` -n ${String(body.namespace)}`;
    io.err.write(
      `${coloured(io, io.err, 'green', 'created')} in ${elapsedMs} ms. Call it: rookery agent invoke ${called}${where} '{}'\n`,
    );
  }
  return exitCode;
}

/** Asks for what the code needs, once that is there. */
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
  if (!asksForDependencies(options.code, runtime, options)) return;
  await installDependencies(io, client, code.source, runtime, options.sandbox);
  spec.dependencies = 'auto';
}

/** The request that the flags stand for. `defaultRuntime` is asked only when it is needed; `sourceOf` gives what the code is mounted from. */
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
  };
  return {
    ...common,
    runtime_spec: {
      runtime: options.runtime ?? (await defaultRuntime()),
      ...(options.sandbox === undefined ? {} : { sandbox_type: options.sandbox }),
      codePath: options.codePath,
      ...(options.handler === undefined ? {} : { handler: options.handler }),
      ...(Object.keys(extendedHandler).length === 0 ? {} : { extendedHandler }),
      rootfs: {
        imageurl: options.image,
        ...(options.user === undefined ? {} : { user: options.user }),
        ...(options.publish === undefined ? {} : { ports: options.publish }),
      },
      ...(options.cpu === undefined ? {} : { cpu: parseWhole(options.cpu, '--cpu') }),
      ...(options.memory === undefined ? {} : { memory: parseWhole(options.memory, '--memory') }),
    },
  };
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

/** `src:dst`, `src:dst:ro`, `src:dst:rw`; a relative source counts from the working directory. */
export function parseMount(text: string): { source: string; target: string; readonly: boolean } {
  const match = /^([^:]+):([^:]+)(?::(ro|rw))?$/.exec(text);
  if (match === null)
    throw usageError(`--mount must be source:target or source:target:ro, not ${JSON.stringify(text)}.`);
  const [, source = '', target = '', mode] = match;
  return { source: resolve(source), target, readonly: mode === 'ro' };
}

function parseWhole(text: string, flag: string): number {
  if (!/^\d{1,12}$/.test(text)) throw usageError(`${flag} must be a whole number, not ${JSON.stringify(text)}.`);
  return Number(text);
}

/** `never`, `on-failure`, `always`, and how often in a row: `on-failure:3`. */
function parseRestart(text: string): object {
  const match = /^(never|on-failure|always)(?::(\d{1,4}))?$/.exec(text);
  if (match === null)
    throw usageError(
      `--restart must be never, on-failure, always, or one with a number: on-failure:3; not ${JSON.stringify(text)}.`,
    );
  const [, policy, most] = match;
  return { policy, ...(most === undefined ? {} : { max_restarts: Number(most) }) };
}

const PYTHON_TIMEOUT_MS = 5000;

/** The Python of this machine, as a runtime: a guess that only makes sense for a service on this machine. */
export async function localPython({ hostname }: URL): Promise<string> {
  const isHere = ['127.0.0.1', 'localhost', '[::1]'].includes(hostname);
  if (isHere) {
    const print = 'import sys; print("%d.%d" % sys.version_info[:2])';
    const asked = await promisify(execFile)('python3', ['-c', print], { timeout: PYTHON_TIMEOUT_MS }).catch(() => null);
    const found = asked?.stdout.trim() ?? '';
    if (/^3\.\d+$/.test(found)) return `python${found}`;
  }
  throw new CliError('Say which runtime the code needs: --runtime python3.11, nodejs22, go, java17, …', 2);
}
