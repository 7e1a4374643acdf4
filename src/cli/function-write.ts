import { resolve } from 'node:path';
import type { JsonObject } from '../core/field-reader.ts';
import { readRegister, readUpdate } from '../core/function-fields.ts';
import { LATEST } from '../core/urn.ts';
import { parsePairs } from './agent-create.ts';
import { Client, type ClientOptions } from './client.ts';
import { parseDurationMs } from './duration.ts';
import { usageError } from './exit.ts';
import { expandName, parseNamedVersion } from './function-name.ts';
import type { Io } from './io.ts';
import { callMeta, metaPath } from './meta-call.ts';
import { printJson, withSpinner } from './print.ts';
import { readRequestFile, refuseProblems } from './request-file.ts';

interface FunctionFlags extends ClientOptions {
  readonly file?: string;
  readonly runtime?: string;
  readonly code?: string;
  readonly codePath?: string;
  readonly handler?: string;
  readonly initializer?: string;
  readonly preStop?: string;
  readonly env?: readonly string[];
  readonly cpu?: string;
  readonly memory?: string;
  readonly timeout?: string;
  readonly description?: string;
  readonly sandbox?: string;
  readonly image?: string;
  readonly user?: string;
  readonly publish?: readonly string[];
  readonly min?: string;
  readonly max?: string;
  readonly concurrency?: string;
  readonly json?: boolean;
}

interface FunctionAnswer {
  readonly functionVersionUrn: string;
  readonly revisionId: string;
  readonly name: string;
  readonly kind: string;
}

/** Where an agent's code stands in its sandbox, unless the caller says otherwise. */
const CODE_PATH = '/opt/function/code';

export async function registerFunction(
  io: Io,
  given: string | undefined,
  options: FunctionFlags & { readonly kind: string },
  isKindDefault: boolean,
): Promise<void> {
  const file = await readFile(io, options);
  const kind = file?.kind !== undefined && isKindDefault ? String(file.kind) : options.kind;
  const name = given === undefined ? file?.name : expandName(given);
  if (name === undefined && options.file === undefined) {
    throw usageError(
      'The function needs a name: rookery function register <name> --code <dir> --handler <module.function>.',
    );
  }
  const usual = options.file === undefined ? { cpu: 1000, memory: 2048 } : {};
  const body = { ...usual, ...file, ...(name === undefined ? {} : { name }), kind, ...fieldsFromFlags(options, kind) };
  const read = readRegister(body);
  if (!read.ok) refuseProblems(options.file ?? 'The function', read.problems);
  const client = await Client.open(options, io);
  const answer = await withSpinner(io, 'registering the function', () => callMeta(client, 'POST', '/functions', body));
  print(io, options, answer.function as FunctionAnswer);
}

export async function updateFunction(
  io: Io,
  given: string,
  options: FunctionFlags & { readonly revision?: string },
): Promise<void> {
  const name = expandName(given);
  const client = await Client.open(options, io);
  const file = await readFile(io, options);
  const latest = await getLatest(client, name);
  const sent = { ...file, ...fieldsFromFlags(options, latest.kind) };
  if (Object.keys(sent).length === 0) throw usageError('Say what is to change: a flag, or -f FILE.');
  const body = { ...sent, revisionId: options.revision ?? (file?.revisionId as string) ?? latest.revisionId };
  const read = readUpdate(body);
  if (!read.ok) refuseProblems(options.file ?? 'The update', read.problems);
  const answer = await callMeta(client, 'PUT', `/functions/${name}`, body);
  print(io, options, answer.function as FunctionAnswer);
}

export async function publishFunction(
  io: Io,
  given: string,
  options: ClientOptions & {
    readonly as?: string;
    readonly description?: string;
    readonly revision?: string;
    readonly json?: boolean;
  },
): Promise<void> {
  const name = expandName(given);
  const client = await Client.open(options, io);
  const answer = await callMeta(client, 'POST', `/functions/${name}/versions`, {
    revisionId: options.revision ?? (await getLatest(client, name)).revisionId,
    versionNumber: options.as ?? '',
    versionDesc: options.description ?? '',
  });
  print(io, options, answer.function as FunctionAnswer);
}

export async function deleteFunctions(
  io: Io,
  given: readonly string[],
  options: ClientOptions & { readonly json?: boolean },
): Promise<void> {
  const named = given.map(parseNamedVersion);
  const client = await Client.open(options, io);
  for (const { name, version } of named) {
    await callMeta(client, 'DELETE', metaPath(`/functions/${name}`, { versionNumber: version }));
    const gone = version === LATEST ? name : `${name}:${version}`;
    if (options.json !== true) io.out.write(`${gone}\n`);
  }
  if (options.json === true) printJson(io, { deleted: named });
}

async function getLatest(client: Client, name: string): Promise<FunctionAnswer> {
  const answer = await callMeta(client, 'GET', metaPath(`/functions/${name}`, { versionNumber: LATEST }));
  return answer.function as FunctionAnswer;
}

function print(io: Io, options: { readonly json?: boolean }, fn: FunctionAnswer): void {
  if (options.json === true) printJson(io, fn);
  else io.out.write(`${fn.functionVersionUrn}\n`);
}

async function readFile(io: Io, { file }: FunctionFlags): Promise<JsonObject | undefined> {
  if (file === undefined) return undefined;
  const value = await readRequestFile(io, file);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw usageError(`${file} must hold one function: a map with name, runtime, cpu, memory and the rest.`);
  }
  return value as JsonObject;
}

/** The fields that the flags stand for; those that are not given are left out. */
function fieldsFromFlags(flags: FunctionFlags, kind: string): JsonObject {
  const rootfs = without({ imageurl: flags.image, user: flags.user, ports: flags.publish });
  const extendedHandler = without({ initializer: flags.initializer, pre_stop: flags.preStop });
  const code = codeFields(flags, kind, rootfs);
  return without({
    runtime: flags.runtime,
    handler: flags.handler,
    description: flags.description,
    sandboxType: flags.sandbox,
    cpu: wholeOf(flags.cpu, '--cpu'),
    memory: wholeOf(flags.memory, '--memory'),
    timeout: flags.timeout === undefined ? undefined : Math.ceil(parseDurationMs(flags.timeout, '--timeout') / 1000),
    minInstance: wholeOf(flags.min, '--min'),
    maxInstance: wholeOf(flags.max, '--max'),
    concurrentNum: wholeOf(flags.concurrency, '--concurrency'),
    environment: flags.env === undefined ? undefined : parsePairs(flags.env, '--env'),
    extendedHandler: Object.keys(extendedHandler).length === 0 ? undefined : extendedHandler,
    rootfs: Object.keys(rootfs).length === 0 ? undefined : rootfs,
    ...code,
  });
}

/** The code of a function service is named by its place on the host; that of an agent is mounted where its `codePath` says. */
function codeFields(flags: FunctionFlags, kind: string, rootfs: JsonObject): JsonObject {
  if (flags.code === undefined) return without({ codePath: flags.codePath });
  const source = resolve(flags.code);
  if (kind !== 'agent') return { storageType: 'local', codePath: source };
  const target = flags.codePath ?? CODE_PATH;
  return { codePath: target, rootfs: { ...rootfs, mounts: [{ source, target, readonly: true }] } };
}

function wholeOf(text: string | undefined, flag: string): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,12}$/.test(text)) throw usageError(`${flag} must be a whole number, not ${JSON.stringify(text)}.`);
  return Number(text);
}

function without(fields: Readonly<Record<string, unknown>>): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
