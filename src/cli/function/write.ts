import { resolve } from 'node:path';
import { CODE_TARGET } from '../../core/code-package.ts';
import { readRegister, readUpdate } from '../../core/function.ts';
import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { LAMBDA_RUNTIME } from '../../core/lambda-name.ts';
import { LATEST } from '../../core/urn.ts';
import { checkHandler, isOfImage, missingImage } from '../agent/create.ts';
import { asksForDependencies, type DependencyOptions, installDependencies } from '../code/dependencies.ts';
import { HINTS, schemaOfHints } from '../code/input-schema.ts';
import { runtimeOf } from '../code/runtime.ts';
import { mustUpload, type UploadOptions, uploadArchive, uploadCode } from '../code/upload.ts';
import { type VariableOptions, variablesOf } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import { readJsonArgument, readRequestFile, refuseProblems } from '../shared/input.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printWarning, withSpinner } from '../shared/print.ts';
import { parseCpuMillis, parseDurationMs, parseMemoryMb } from '../shared/units.ts';
import { callMeta, forEach, metaPath } from './meta-call.ts';
import { expandName, functionUrl, type NamedVersion, parseFunction, parseNamedVersion } from './records.ts';

interface FunctionFlags extends ClientOptions, DependencyOptions, UploadOptions, VariableOptions {
  readonly file?: string;
  readonly runtime?: string;
  readonly httpProfile?: string;
  readonly layer?: readonly string[];
  readonly code?: string;
  readonly codePath?: string;
  readonly handler?: string;
  readonly initializer?: string;
  readonly preStop?: string;
  readonly cpu?: string;
  readonly memory?: string;
  readonly timeout?: string;
  readonly description?: string;
  readonly inputSchema?: string;
  readonly validateInput?: boolean;
  readonly sandbox?: string;
  readonly image?: string;
  readonly user?: string;
  readonly publish?: readonly string[];
  readonly min?: string;
  readonly max?: string;
  readonly concurrency?: string;
  readonly json?: boolean;
}

interface FunctionAnswer extends JsonObject {
  readonly functionVersionUrn: string;
  readonly revisionId: string;
  readonly name: string;
  readonly kind: string;
}

/** Registers a function from flags or a file, and prints its URN: `rookery function register`. */
export async function registerFunction(
  io: Io,
  given: string | undefined,
  sent: FunctionFlags & { readonly kind: string },
  isKindDefault: boolean,
): Promise<void> {
  const file = await readFile(io, sent);
  const kind = isKindDefault ? String(file?.kind ?? sent.kind) : sent.kind;
  const name = given === undefined ? file?.name : expandName(given);
  if (name === undefined && sent.file === undefined) {
    throw usageError(
      'The function needs a name: rookery function register <name> --code <dir> --handler <module.function>.',
    );
  }
  if (file === undefined && isOfImage(sent.sandbox) && sent.image === undefined) {
    throw missingImage(String(sent.sandbox));
  }
  const client = await Client.open(sent, io);
  const runtime = file === undefined ? await registeredRuntime(client, sent) : undefined;
  const options = await withSchema(io, sent, { runtime, ...file, kind });
  const packaged = await uploaded(io, client, options);
  const flags = fieldsFromFlags(options, kind, file ?? {}, packaged);
  const usual = options.file === undefined ? { cpu: 1000, memory: 2048, runtime } : {};
  const whole = { ...usual, ...file, ...(name === undefined ? {} : { name }), kind, ...flags };
  const layers = await layersOf(io, client, options, whole);
  const body = { ...whole, ...layers, ...(await dependenciesOf(io, client, options, packaged, whole)) };
  const read = readRegister(body);
  if (!read.ok) refuse('The function', read.problems, options);
  const answer = await withSpinner(io, 'registering the function', () => callMeta(client, 'POST', '/functions', body));
  const fn = answer.function as FunctionAnswer;
  print(io, options, fn);
  if (options.file === undefined && flags.handler !== undefined && flags.codePath === undefined) {
    printWarning(io, 'without --code every call fails: "rookery function update" gives the function its code');
  }
  await warnOfMissingCode(io, client, fn);
}

/** Replaces `--input-schema @file`, `-` and `hints` by JSON. `base` has the other fields of the function. */
async function withSchema<T extends FunctionFlags>(io: Io, options: T, base: JsonObject): Promise<T> {
  const { inputSchema } = options;
  if (inputSchema === undefined) return options;
  if (inputSchema !== HINTS) return { ...options, inputSchema: await readJsonArgument(io, inputSchema) };
  const isHere = base.kind !== 'agent' && (base.storageType === 'local' || base.storageType === 'copy');
  const schema = await schemaOfHints('--input-schema', {
    code: options.code ?? (isHere ? String(base.codePath) : undefined),
    handler: options.handler ?? textOf(base.handler),
    runtime: options.runtime ?? textOf(base.runtime),
  });
  return { ...options, inputSchema: JSON.stringify(schema) };
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Fields of a request with the flag that sets each, and the unit of its bounds. */
const FLAGS: Readonly<Record<string, readonly [flag: string, unit: string]>> = {
  cpu: ['--cpu', ' millicores'],
  memory: ['--memory', ' MB'],
  timeout: ['--timeout', ' s'],
  minInstance: ['--min', ''],
  maxInstance: ['--max', ''],
  concurrentNum: ['--concurrency', ''],
  handler: ['--handler', ''],
  runtime: ['--runtime', ''],
  httpProfile: ['--http-profile', ''],
  layers: ['--layer', ''],
  sandboxType: ['--sandbox', ''],
  codePath: ['--code-path', ''],
  description: ['--description', ''],
  inputSchema: ['--input-schema', ''],
  validateInput: ['--validate-input', ''],
  'extendedHandler.initializer': ['--initializer', ''],
  'extendedHandler.pre_stop': ['--pre-stop', ''],
  'rootfs.imageurl': ['--image', ''],
  'rootfs.user': ['--user', ''],
};

/** Refuses a request. Without a file each field comes from a flag, so the problems name flags. */
function refuse(what: string, problems: readonly string[], { file }: Pick<FunctionFlags, 'file'>): never {
  refuseProblems(file ?? what, file === undefined ? problems.map(withFlag) : problems);
}

function withFlag(problem: string): string {
  const field = /^[\w.]+/.exec(problem)?.[0] ?? '';
  const known = FLAGS[field];
  if (known === undefined) return problem;
  const [flag, unit] = known;
  const rest = problem.slice(field.length);
  return flag + rest.replace(/^ must be between (\d+) and (\d+), got /, ` must be between $1 and $2${unit}, not `);
}

/** Chooses the runtime and checks the handler, because neither check needs an upload. */
async function registeredRuntime(client: Client, options: FunctionFlags): Promise<string> {
  const { code, handler, httpProfile } = options;
  const usual = async () =>
    httpProfile === undefined ? await runtimeOf(code, handler, client.addresses.frontend) : 'http';
  const runtime = options.runtime ?? (await usual());
  checkHandler(code, handler, runtime);
  return runtime;
}

/** Changes fields of the latest version of a function: `rookery function update`. */
export async function updateFunction(
  io: Io,
  given: string,
  wanted: FunctionFlags & { readonly revision?: string },
): Promise<void> {
  const name = parseFunction(given);
  const client = await Client.open(wanted, io);
  const file = await readFile(io, wanted);
  const latest = await getLatest(client, name);
  const ofFile = Object.entries(file ?? {}).filter(([, value]) => value !== null);
  const base = { ...latest, ...Object.fromEntries(ofFile) };
  const options = await withSchema(io, wanted, base);
  const packaged = await uploaded(io, client, options);
  const layers = await layersOf(io, client, options, base);
  const flags = { ...file, ...fieldsFromFlags(options, latest.kind, base, packaged), ...layers };
  const sent = { ...flags, ...(await dependenciesOf(io, client, options, packaged, { ...base, ...flags })) };
  if (Object.keys(sent).length === 0) throw usageError('Say what is to change: a flag, or -f FILE.');
  const body = { ...sent, revisionId: options.revision ?? (file?.revisionId as string) ?? latest.revisionId };
  const read = readUpdate(body);
  if (!read.ok) refuse('The update', read.problems, options);
  const answer = await callMeta(client, 'PUT', functionUrl(name), body);
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
  const name = parseFunction(given);
  const client = await Client.open(options, io);
  const answer = await callMeta(client, 'POST', `${functionUrl(name)}/versions`, {
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
  const deleted: NamedVersion[] = [];
  await forEach(named, async fn => {
    const { name, version } = fn;
    await callMeta(client, 'DELETE', metaPath(functionUrl(name), { versionNumber: version }));
    deleted.push(fn);
    if (options.json !== true) io.out.write(`${version === LATEST ? name : `${name}:${version}`}\n`);
  }).finally(() => {
    if (options.json === true) printJson(io, { deleted });
  });
}

/** Warns if the host lacks the code. The service reports that only when one version is queried. */
async function warnOfMissingCode(
  io: Io,
  client: Client,
  { name, codePath, storageType }: FunctionAnswer,
): Promise<void> {
  if (storageType !== 'local' && storageType !== 'copy') return;
  const { status } = await getLatest(client, name);
  if (status !== 'unavailable') return;
  // The service does not distinguish the two cases, so that callers cannot probe for directories.
  printWarning(
    io,
    `the host of the service has no directory ${String(codePath)}, or its setting mounts.allow does not name it: calls fail until both are so. ` +
      'With --upload the code is sent as a package.',
  );
}

async function getLatest(client: Client, name: string): Promise<FunctionAnswer> {
  const answer = await callMeta(client, 'GET', metaPath(functionUrl(name), { versionNumber: LATEST }));
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

/**
 * Returns the fields that the flags set. If a field has several parts (root file system, environment), a flag
 * changes one part. The other parts come from `base`: the file or the latest revision.
 */
function fieldsFromFlags(flags: FunctionFlags, kind: string, base: JsonObject, packaged: string | null): JsonObject {
  const { codePath, storageType, mounts } =
    packaged === null ? codeFields(flags, kind, base) : packageFields(flags, base, packaged);
  return without({
    runtime: flags.runtime,
    handler: flags.handler,
    httpProfile: flags.httpProfile,
    description: flags.description,
    inputSchema: flags.inputSchema === undefined ? undefined : JSON.parse(flags.inputSchema),
    validateInput: flags.validateInput,
    sandboxType: flags.sandbox,
    cpu: flags.cpu === undefined ? undefined : parseCpuMillis(flags.cpu),
    memory: flags.memory === undefined ? undefined : parseMemoryMb(flags.memory),
    timeout: flags.timeout === undefined ? undefined : Math.ceil(parseDurationMs(flags.timeout, '--timeout') / 1000),
    minInstance: wholeOf(flags.min, '--min'),
    maxInstance: wholeOf(flags.max, '--max'),
    concurrentNum: wholeOf(flags.concurrency, '--concurrency'),
    environment: changed(base.environment, variablesOf(flags) ?? {}),
    extendedHandler: changed(base.extendedHandler, { initializer: flags.initializer, pre_stop: flags.preStop }),
    rootfs: changed(base.rootfs, { imageurl: flags.image, user: flags.user, ports: flags.publish, mounts }),
    storageType,
    codePath,
  });
}

/** Returns the object with the given parts replaced, or undefined when no part is given. */
function changed(object: unknown, given: JsonObject): JsonObject | undefined {
  const parts = without(given);
  if (Object.keys(parts).length === 0) return undefined;
  return { ...(isJsonObject(object) ? object : {}), ...parts };
}

interface CodeFields {
  readonly codePath?: string | undefined;
  readonly storageType?: string;
  readonly mounts?: readonly unknown[];
}

/**
 * Returns the code fields. An agent mounts its code at `codePath`; other kinds name a directory on the host.
 */
function codeFields({ code, codePath }: FunctionFlags, kind: string, base: JsonObject): CodeFields {
  if (kind !== 'agent') {
    if (code === undefined) return { codePath };
    return { storageType: base.storageType === 'copy' ? 'copy' : 'local', codePath: resolve(code) };
  }
  const mounts = isJsonObject(base.rootfs) && Array.isArray(base.rootfs.mounts) ? base.rootfs.mounts : [];
  const isCode = (mount: unknown) => isJsonObject(mount) && mount.target === base.codePath;
  if (code === undefined) {
    if (codePath === undefined || !mounts.some(isCode)) return { codePath };
    return { codePath, mounts: mounts.map(mount => (isCode(mount) ? { ...mount, target: codePath } : mount)) };
  }
  const before = base.storageType === 'package' ? '' : String(base.codePath ?? '');
  const target = codePath ?? (before || CODE_TARGET);
  const others = mounts.filter(mount => !isCode(mount));
  const wasPackage = base.storageType === 'package' ? { storageType: '' } : {};
  return { codePath: target, mounts: [{ source: resolve(code), target, readonly: true }, ...others], ...wasPackage };
}

/**
 * Uploads the code and returns its URL. Returns null without code, or when the service reads the directory
 * itself.
 */
async function uploaded(io: Io, client: Client, options: FunctionFlags): Promise<string | null> {
  if (options.code === undefined || !mustUpload(client, options)) return null;
  return await uploadCode(io, client, options.code);
}

/** Uploads the layers of the flags. Returns the field that names all of them, or no field without a flag. */
async function layersOf(
  io: Io,
  client: Client,
  { layer }: Pick<FunctionFlags, 'layer'>,
  { runtime }: JsonObject,
): Promise<JsonObject> {
  if (layer === undefined) return {};
  if (runtime !== LAMBDA_RUNTIME) {
    throw usageError(`--layer: layers need --runtime ${LAMBDA_RUNTIME}, not ${String(runtime)}.`);
  }
  const layers: string[] = [];
  for (const file of layer) layers.push(await uploadArchive(io, client, file, '--layer'));
  return { layers };
}

/** Returns the dependencies field for changed code, after installing its dependencies. */
async function dependenciesOf(
  io: Io,
  client: Client,
  options: FunctionFlags,
  packaged: string | null,
  { runtime, sandboxType, dependencies }: JsonObject,
): Promise<JsonObject> {
  if (options.code === undefined) return {};
  if (!asksForDependencies(options.code, String(runtime), options)) {
    return dependencies === undefined ? {} : { dependencies: 'none' };
  }
  await installDependencies(io, client, packaged ?? resolve(options.code), String(runtime), String(sandboxType ?? ''));
  return { dependencies: 'auto' };
}

/**
 * Returns the fields of uploaded code, which has the same place for every kind. Removes an older code mount,
 * which would hide the package.
 */
function packageFields({ codePath }: FunctionFlags, base: JsonObject, packaged: string): CodeFields {
  if (codePath !== undefined) {
    throw usageError(`--code-path: uploaded code is always at ${CODE_TARGET} in the sandbox; leave it out.`);
  }
  const mounts = isJsonObject(base.rootfs) && Array.isArray(base.rootfs.mounts) ? base.rootfs.mounts : [];
  const others = mounts.filter(mount => !isJsonObject(mount) || mount.target !== base.codePath);
  const changed = others.length === mounts.length ? {} : { mounts: others };
  return { storageType: 'package', codePath: packaged, ...changed };
}

function wholeOf(text: string | undefined, flag: string): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,12}$/.test(text)) throw usageError(`${flag} must be a whole number, not ${JSON.stringify(text)}.`);
  return Number(text);
}

function without(fields: Readonly<Record<string, unknown>>): JsonObject {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
