import { environmentNameProblem } from './environment.ts';
import { invalidRequest } from './error.ts';
import type { InstanceSpec, SandboxType } from './instance.ts';
import { type Fields, invalidBody } from './json.ts';
import { LIMITS } from './limits.ts';
import type { MountSpec } from './mount.ts';
import { type PortSpec, parsePorts } from './port.ts';
import { type RequestedSandboxType, runsImages, SANDBOX_TYPES } from './sandbox-types.ts';

/**
 * An agent create request after its checks (everything that can be checked without looking at a disk or a registry).
 * `inline` carries the whole spec; `registered` carries what the caller adds to the function version.
 */
export type AgentCreateRequest = {
  readonly tenant: string;
  readonly namespace: string;
  readonly name: string;
  readonly workspace: string;
  readonly envVars: Readonly<Record<string, string>>;
  readonly mounts: readonly MountSpec[];
} & ({ readonly mode: 'inline'; readonly spec: InstanceSpec } | { readonly mode: 'registered'; readonly urn: string });

/** `sandbox_type` of a request → driver; `''` is the default executor of this installation. */
export interface ExecutorDefaults {
  readonly defaultSandboxType: SandboxType;
}

/** What the registry tells about a function version that an agent is made from. */
export interface AgentFunction {
  readonly functionName: string;
  readonly functionVersion: string;
  readonly functionUrn: string;
  /** `''`: the default executor. */
  readonly sandboxType: RequestedSandboxType;
  readonly runtime: string;
  readonly codePath: string;
  readonly handler: string;
  readonly initializer: string;
  readonly preStop: string;
  readonly imageUrl: string;
  readonly user: string;
  readonly ports: readonly PortSpec[];
  /** Mounts that were registered with it; the request's own come after them. */
  readonly mounts: readonly MountSpec[];
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly environment: Readonly<Record<string, string>>;
  readonly callTimeoutMs: number;
  readonly initTimeoutMs: number;
  readonly preStopTimeoutMs: number;
}

/** The registry, as far as a create needs it. */
export interface FunctionResolver {
  /** Fails with `failed_precondition` (`invalid function: <why>`) for what is no URN, not there, or of a kind that cannot be an agent. */
  resolveFunction(tenant: string, urn: string): Promise<AgentFunction>;
}

/** Control characters, and halves of surrogate pairs, which no UTF-8 text can hold. */
const UNPRINTABLE = /[\p{Cc}\p{Cs}]/u;

/**
 * Reads the body of an agent create request. The checks stand in the order of the decisions: `namespace` and `name`, the
 * mode, `runtime` and `rootfs.imageurl` (inline), the rest of the spec, mounts, urn; the first failure answers
 * (`invalid_request`). Whether sources are safe and exist is `checkSources`' part, which comes before the urn is resolved.
 */
export function readAgentCreate(body: Fields, tenant: string, defaults: ExecutorDefaults): AgentCreateRequest {
  const namespace = readName(body, 'namespace');
  const name = readName(body, 'name');
  const runtimeSpec = body.object('runtime_spec');
  const hasUrn = body.has('urn');
  if (runtimeSpec === undefined && (!hasUrn || (body.isText('urn') && body.text('urn') === ''))) {
    throw invalidRequest('one of runtime_spec (inline) or urn (registered) is required');
  }
  const inline = runtimeSpec === undefined ? undefined : readRuntimeSpec(runtimeSpec);
  const envVars = readEnv(body, 'env_vars');
  const workspace = body.rawText('workspace') ?? '';
  const mounts = (body.objects('mounts') ?? []).map(readMount);
  if (mounts.length > LIMITS.mounts) throw invalidBody(`mounts must have at most ${LIMITS.mounts} items`);
  const request = { tenant, namespace, name, workspace, envVars, mounts };
  if (inline === undefined) return { ...request, mode: 'registered', urn: body.requiredText('urn') };
  return { ...request, mode: 'inline', spec: resolveSpec(request, inline, defaults) };
}

/** The spec of an agent in registered mode: the function's, with the caller's mounts and `env_vars` added (which win). */
export function resolveRegistered(
  request: Omit<AgentCreateRequest, 'mode'>,
  fn: AgentFunction,
  defaults: ExecutorDefaults,
): InstanceSpec {
  return resolveSpec(request, fn, defaults);
}

/** Names of environment variables: `[A-Za-z_][A-Za-z0-9_]*`, and not the platform's own. Fails with `invalid_request`. */
export function readEnv(body: Fields, field: string): Record<string, string> {
  const env = body.textMap(field) ?? {};
  for (const name of Object.keys(env)) {
    const problem = environmentNameProblem(name);
    if (problem !== undefined) throw invalidBody(`${body.pathOf(field)}.${name} ${problem}`);
  }
  return env;
}

/** `sandbox_type`: one that there is, or `''`. Fails with `invalid_request`. */
export function readSandboxType(body: Fields, field: string): RequestedSandboxType {
  const value = body.text(field) ?? '';
  if (value === '' || (SANDBOX_TYPES as readonly string[]).includes(value)) return value as RequestedSandboxType;
  throw invalidBody(`${body.pathOf(field)} must be one of ${SANDBOX_TYPES.join(', ')} or empty, got "${value}"`);
}

function readName(body: Fields, field: string): string {
  const value = body.requiredText(field);
  if ([...value].length > LIMITS.agentNameChars || UNPRINTABLE.test(value)) {
    throw invalidBody(`${field} must have 1 to ${LIMITS.agentNameChars} characters and no control characters`);
  }
  return value;
}

function readMount(mount: Fields): MountSpec {
  const source = mount.rawText('source');
  if (source === undefined) throw invalidBody(`${mount.pathOf('source')} is required`);
  const target = mount.text('target');
  if (target === undefined) throw invalidBody(`${mount.pathOf('target')} is required`);
  return { source, target, readonly: mount.boolean('readonly') ?? false };
}

function readRuntimeSpec(spec: Fields): AgentFunction {
  const runtime = spec.requiredText('runtime');
  const rootfs = spec.section('rootfs');
  const imageUrl = rootfs.requiredText('imageurl');
  const sandboxType = readSandboxType(spec, 'sandbox_type');
  const codePath = spec.text('codePath') ?? '';
  const handler = spec.text('handler') ?? '';
  const extended = spec.section('extendedHandler');
  return {
    functionName: '',
    functionVersion: '',
    functionUrn: '',
    sandboxType,
    runtime,
    codePath,
    handler,
    initializer: extended.text('initializer') ?? '',
    preStop: extended.text('pre_stop') ?? '',
    imageUrl,
    user: rootfs.text('user') ?? '',
    ports: parsePorts(rootfs.texts('ports') ?? [], rootfs.pathOf('ports')),
    mounts: [],
    cpuMillis: spec.integer('cpu', LIMITS.cpuMillis) ?? LIMITS.cpuMillis.default,
    memoryMb: spec.integer('memory', LIMITS.memoryMb) ?? LIMITS.memoryMb.default,
    environment: {},
    callTimeoutMs: LIMITS.inlineInvokeTimeoutMs,
    initTimeoutMs: LIMITS.initializerTimeoutMs,
    preStopTimeoutMs: 0,
  };
}

function resolveSpec(
  request: Omit<AgentCreateRequest, 'mode'>,
  fn: AgentFunction,
  { defaultSandboxType }: ExecutorDefaults,
): InstanceSpec {
  const sandboxType = fn.sandboxType === '' ? defaultSandboxType : fn.sandboxType;
  const hasImage = runsImages(sandboxType);
  return {
    tenant: request.tenant,
    namespace: request.namespace,
    name: request.name,
    sandboxType,
    runtime: fn.runtime,
    codePath: fn.codePath,
    handler: fn.handler,
    initializer: fn.initializer,
    preStop: fn.preStop,
    rootfs: { type: hasImage ? 'image' : 'host', imageUrl: fn.imageUrl, user: fn.user },
    ports: fn.ports,
    cpuMillis: fn.cpuMillis,
    memoryMb: fn.memoryMb,
    env: { ...fn.environment, ...request.envVars },
    workspace: request.workspace,
    mounts: [...fn.mounts, ...request.mounts],
    callTimeoutMs: fn.callTimeoutMs,
    initTimeoutMs: fn.initTimeoutMs,
    preStopTimeoutMs: fn.preStopTimeoutMs,
    concurrency: 1,
    functionName: fn.functionName,
    functionVersion: fn.functionVersion,
    functionUrn: fn.functionUrn,
  };
}
