import { isDeepStrictEqual } from 'node:util';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { META_CODES } from '../../core/codes.ts';
import { ServiceError } from '../../core/error.ts';
import { type FunctionSpec, readRegister } from '../../core/function.ts';
import { LAMBDA_LATEST, LAMBDA_RUNTIME, readLambdaName } from '../../core/lambda-name.ts';
import { LIMITS } from '../../core/limits.ts';
import { FUNCTION_NAME_FORMAT, isFunctionName, LATEST } from '../../core/urn.ts';
import { functionExists, staleRevision } from '../../registry/errors.ts';
import type { FunctionRegistry } from '../../registry/functions.ts';
import { CODE_BODY_BYTES, type CodeUploads } from './code-uploads.ts';
import {
  answering,
  type ByName,
  describeFunction,
  type FunctionFacts,
  factsOf,
  invalidValue,
  type RouteOptions,
  readNamed,
  type SizeReads,
} from './configuration.ts';
import { fromLambdaLayers } from './layers.ts';
import {
  type ConfigurationRequest,
  type CreateRequest,
  readCodeUpdate,
  readConfigurationRequest,
  readCreateRequest,
} from './requests.ts';
import { fromLambdaVariables } from './variables.ts';
import { checkVersionFits, publishVersion, type VersionChanges } from './versions.ts';

export interface FunctionChangesOptions {
  readonly registry: Pick<FunctionRegistry, 'get' | 'register' | 'update'> & VersionChanges;
  readonly uploads: CodeUploads;
  readonly packages: SizeReads;
}

/** Attempts of an update while other clients change the function. */
const ATTEMPTS = 5;

/** Adds the routes that create functions and change their code and settings. */
export function addFunctionChanges(
  app: FastifyInstance,
  path: string,
  options: FunctionChangesOptions,
  optionsOf: RouteOptions,
): void {
  const changes = new FunctionChanges(options);
  const answer = (reply: FastifyReply, tenant: string, change: () => Promise<FunctionFacts>) =>
    answering(reply, async () => await describeFunction(await change(), tenant, options.packages));
  const bodyLimit = CODE_BODY_BYTES;
  app.post(path, { bodyLimit, ...optionsOf('write', path) }, (request, reply) =>
    answer(reply.code(201), request.tenant, () => changes.create(request.tenant, request.body)),
  );
  const code = `${path}/:name/code`;
  app.put<ByName>(code, { bodyLimit, ...optionsOf('write', code) }, (request, reply) =>
    answer(reply, request.tenant, () => changes.updateCode(request.tenant, readLatest(request), request.body)),
  );
  const configuration = `${path}/:name/configuration`;
  app.put<ByName>(configuration, optionsOf('write', configuration), (request, reply) =>
    answer(reply, request.tenant, () => changes.configure(request.tenant, readLatest(request), request.body)),
  );
}

/** Creates and updates functions. Fails with the errors of the registry, or a `LambdaError`. */
class FunctionChanges {
  readonly #options: FunctionChangesOptions;
  readonly #uploads: CodeUploads;

  constructor(options: FunctionChangesOptions) {
    this.#options = options;
    this.#uploads = options.uploads;
  }

  async create(tenant: string, body: unknown): Promise<FunctionFacts> {
    const { registry } = this.#options;
    const wanted = await readCreateRequest(body);
    const name = readNewName(wanted.FunctionName);
    if (wanted.PackageType === 'Image') throw invalidValue('PackageType must be Zip: images are not supported here');
    if (wanted.Runtime === '') throw invalidValue('Runtime is required: python3.*, nodejs*.x or provided.al2023');
    if (wanted.Handler === '') throw invalidValue('Handler is required: <module>.<function>, such as app.handler');
    const codePath = await this.#uploads.pathOf(wanted.Code);
    const spec = toSpec(name, codePath, wanted);
    if ((await registry.versions(tenant, name, 1, 1)).total > 0) throw functionExists(name);
    await this.#uploads.store(tenant, codePath, wanted.Code);
    const { record } = await registry.register(tenant, spec);
    return wanted.Publish ? await this.#publish(tenant, name) : (JSON.parse(record) as FunctionFacts);
  }

  async updateCode(tenant: string, name: string, body: unknown): Promise<FunctionFacts> {
    const { registry } = this.#options;
    const wanted = await readCodeUpdate(body);
    const codePath = await this.#uploads.pathOf(wanted);
    const latest = await registry.get(tenant, name, LATEST);
    if (wanted.RevisionId !== '' && wanted.RevisionId !== latest.revisionId) throw staleRevision();
    if (wanted.DryRun) return factsOf(latest);
    if (wanted.Publish) await checkVersionFits(registry, tenant, name);
    await this.#uploads.store(tenant, codePath, wanted);
    const updated = await this.#update(tenant, name, wanted.RevisionId, () => ({ storageType: 'package', codePath }));
    return wanted.Publish ? await this.#publish(tenant, name) : updated;
  }

  async configure(tenant: string, name: string, body: unknown): Promise<FunctionFacts> {
    const wanted = readConfigurationRequest(body);
    return await this.#update(tenant, name, wanted.RevisionId, spec => toChanges(spec, wanted));
  }

  /** Makes the changes that differ from the latest revision. Without a difference, the revision stays. */
  async #update(
    tenant: string,
    name: string,
    revisionId: string,
    changesOf: (spec: FunctionSpec) => Partial<FunctionSpec>,
  ): Promise<FunctionFacts> {
    const { registry } = this.#options;
    for (let attempt = 1; ; attempt += 1) {
      const latest = await registry.get(tenant, name, LATEST);
      if (revisionId !== '' && revisionId !== latest.revisionId) throw staleRevision();
      const changes = differing(latest.spec, changesOf(latest.spec));
      if (Object.keys(changes).length === 0) return factsOf(latest);
      try {
        const { record } = await registry.update(tenant, name, { revisionId: latest.revisionId, changes });
        return JSON.parse(record) as FunctionFacts;
      } catch (error) {
        const isStale = error instanceof ServiceError && error.number === META_CODES.staleRevision.code;
        if (!isStale || attempt === ATTEMPTS) throw error;
      }
    }
  }

  #publish(tenant: string, name: string): Promise<FunctionFacts> {
    const any = { Description: '', RevisionId: '', CodeSha256: '' };
    return publishVersion(this.#options.registry, tenant, name, any);
  }
}

/** Returns the name of the function that a request changes, which names no published version. */
function readLatest(request: FastifyRequest<ByName>): string {
  const { name, version } = readNamed(request);
  if (version === null || version === LATEST) return name;
  throw invalidValue(`only ${LAMBDA_LATEST} can be changed, got the version ${version}`);
}

function readNewName(sent: string): string {
  const { name = '', version = null } = readLambdaName(sent) ?? {};
  if (isFunctionName(name) && version === null) return name;
  throw invalidValue(
    `FunctionName "${sent}" cannot be the name of a function: expected <function> or <service>@<function>, as in ${FUNCTION_NAME_FORMAT}`,
  );
}

function toSpec(name: string, codePath: string, wanted: CreateRequest): FunctionSpec {
  const { Handler: handler, MemorySize: memory, Timeout: timeout, Description: description, Tags: tags } = wanted;
  const read = readRegister({
    ...{ name, kind: 'faas', runtime: LAMBDA_RUNTIME, storageType: 'package', codePath },
    ...{ handler, memory, timeout, description, tags, cpu: cpuOf(memory), layers: fromLambdaLayers(wanted.Layers) },
    environment: fromLambdaVariables(wanted.Environment.Variables),
  });
  if (!read.ok) throw invalidValue(read.problems.join('; '));
  return read.value;
}

function toChanges(spec: FunctionSpec, wanted: ConfigurationRequest): Partial<FunctionSpec> {
  const { Runtime, Handler: handler, MemorySize: memory, Timeout: timeout, Description: description } = wanted;
  if (Runtime !== undefined && Runtime !== spec.runtime && spec.runtime !== LAMBDA_RUNTIME) {
    throw invalidValue(`Runtime of a function cannot change: it is "${spec.runtime}", got "${Runtime}"`);
  }
  const layers = wanted.Layers === undefined ? undefined : fromLambdaLayers(wanted.Layers);
  if (layers && spec.runtime !== LAMBDA_RUNTIME) {
    throw invalidValue(`Layers need the runtime ${LAMBDA_RUNTIME}: that of the function is "${spec.runtime}"`);
  }
  return {
    ...(handler !== undefined && { handler }),
    ...(timeout !== undefined && { timeout }),
    ...(description !== undefined && { description }),
    ...(layers !== undefined && spec.runtime === LAMBDA_RUNTIME && { layers }),
    ...(wanted.Environment !== undefined && { environment: fromLambdaVariables(wanted.Environment.Variables) }),
    ...(memory !== undefined && { memory }),
    // A share of the processor that was registered by itself stays.
    ...(memory !== undefined && spec.cpu === cpuOf(spec.memory) && { cpu: cpuOf(memory) }),
  };
}

function differing(spec: FunctionSpec, changes: Partial<FunctionSpec>): Partial<FunctionSpec> {
  const names = Object.keys(changes) as (keyof FunctionSpec)[];
  return Object.fromEntries(
    names.filter(name => !isDeepStrictEqual(spec[name], changes[name])).map(name => [name, changes[name]]),
  );
}

/** AWS Lambda gives a whole processor to so much memory. */
const MB_OF_PROCESSOR = 1769;
/** With less, programs start slowly; AWS Lambda gives more than the share while they start. */
const MIN_CPU_MILLIS = 500;

/** Returns the share of the processor that belongs to an amount of memory, as AWS Lambda gives it. */
function cpuOf(memoryMb: number): number {
  const share = Math.round((memoryMb / MB_OF_PROCESSOR) * 1000);
  return Math.min(Math.max(share, MIN_CPU_MILLIS), LIMITS.cpuMillis.max);
}
