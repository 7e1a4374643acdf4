import { addressProblem, EXPOSE, type Expose } from './address.ts';
import { CODE_URL_SHAPE, isCodeUrl, parseCodeUrl, SHA256_PATTERN } from './code-package.ts';
import { DEPENDENCIES_DOC, type DependencyMode, dependencyMode } from './dependencies.ts';
import { assertFilesFit, type Durable, type DurableEntries, durable, entriesOf, withSleep } from './durable.ts';
import { variables } from './environment.ts';
import { invalidRequest } from './error.ts';
import { HTTP_PROFILE_DOC, type HttpProfileName, httpProfileName, httpProfileProblem } from './http-profiles.ts';
import type { InstanceSpec, MountSpec, SandboxType } from './instance.ts';
import { PORT_SCHEMA, PORTS_SCHEMA, type PortSpec, parsePorts } from './instance.ts';
import { failAtFirst, isJsonObject, type JsonObject } from './json.ts';
import { boolean, described, integer, type Kind, list, refine, text } from './kind.ts';
import { LIFETIME_FIELDS, type Lifetime, type LifetimeFields, lifetimeOf } from './lifetime.ts';
import { LIMITS } from './limits.ts';
import { type RestartPolicy, restartPolicy } from './restart-policy.ts';
import {
  IMAGE_SANDBOX_TYPE,
  type RequestedSandboxType,
  runsImages,
  runsInCluster,
  SANDBOX_TYPES,
} from './sandbox-types.ts';
import { type Variables, variable } from './secret.ts';
import { Form, maybe, object, optional, required, type ValueOf } from './shape.ts';

/**
 * An agent create request after all checks that need neither the file system nor the registry. `inline`
 * carries the whole spec; `registered` carries the additions of the caller to the function version.
 */
export type AgentCreateRequest = {
  readonly tenant: string;
  readonly namespace: string;
  readonly name: string;
  readonly workspace: string;
  readonly envVars: Variables;
  readonly mounts: readonly MountSpec[];
  readonly expose?: Expose;
  readonly restartPolicy?: RestartPolicy;
  readonly durable?: Durable;
  /** Takes the name from the agent that holds it, once the new agent is ready. */
  readonly replaces?: boolean;
} & Lifetime &
  ({ readonly mode: 'inline'; readonly spec: InstanceSpec } | { readonly mode: 'registered'; readonly urn: string });

/** Maps `sandbox_type` of a request to a driver; `''` is the default executor of this installation. */
export interface ExecutorDefaults {
  readonly defaultSandboxType: SandboxType;
}

/** The registry's facts about a function version from which an agent is made. */
export interface AgentFunction {
  readonly functionName: string;
  readonly functionVersion: string;
  readonly functionUrn: string;
  /** `''` is the default executor. */
  readonly sandboxType: RequestedSandboxType;
  readonly runtime: string;
  readonly codePath: string;
  /** Absent or `''`: `http`. */
  readonly httpProfile?: HttpProfileName;
  /** Absent: nothing is installed. */
  readonly dependencies?: DependencyMode;
  readonly handler: string;
  readonly initializer: string;
  readonly preStop: string;
  /** Functions for a durable agent. Absent: there are none. */
  readonly entries?: DurableEntries;
  readonly imageUrl: string;
  readonly user: string;
  readonly ports: readonly PortSpec[];
  /** Mounts that were registered with the function. Mounts of the request follow them. */
  readonly mounts: readonly MountSpec[];
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly environment: Variables;
  readonly callTimeoutMs: number;
  readonly initTimeoutMs: number;
  readonly preStopTimeoutMs: number;
  /** The pool that supplies the instances. Absent or `''`: any pool that fits. */
  readonly poolId?: string;
}

/** The part of the registry that a create needs. */
export interface FunctionResolver {
  /**
   * Returns a function version. Fails with `failed_precondition` (`invalid function: <why>`) when `urn` is
   * not a URN, is unknown, or names a kind that cannot be an agent.
   */
  resolveFunction(tenant: string, urn: string): Promise<AgentFunction>;
}

const CONTROL = /\p{Cc}/u;

/** Name or namespace of an agent. */
export const agentName = refine(
  text({ required: true }),
  (name, path, problem) => {
    if ([...name].length <= LIMITS.agentNameChars && !CONTROL.test(name)) return;
    problem(path, `must have 1 to ${LIMITS.agentNameChars} characters and no control characters`);
  },
  { maxLength: LIMITS.agentNameChars, pattern: '^[^\\u0000-\\u001f\\u007f-\\u009f]*$' },
);

const sandboxType: Kind<RequestedSandboxType> = {
  ...refine(text() as Kind<RequestedSandboxType>, (value, path, problem) => {
    if (value === '' || (SANDBOX_TYPES as readonly string[]).includes(value)) return;
    problem(path, `must be one of ${SANDBOX_TYPES.join(', ')} or empty, got "${value}"`);
  }),
  describe: () => ({ enum: ['', ...SANDBOX_TYPES] }),
};

/** Variables that a caller sets. */
export const environment = variables(variable(text()));

export const rootfs = object({
  imageurl: required(text(), 'May be empty only where instances are pods: then it is the image of the pod that fits.'),
  user: optional(text(), '', 'Empty: root.'),
  ports: optional(list(described(text(), PORT_SCHEMA), undefined, PORTS_SCHEMA), []),
});

export const extendedHandler = object({
  initializer: optional(text(), '', '`module.function`, once at the start.'),
  pre_stop: optional(text(), '', '`module.function`, once at the end.'),
  alarm: optional(text(), '', '`module.function`, for each alarm of a durable agent; without it the handler.'),
  sleep: optional(text(), '', '`module.function`, before a durable agent falls asleep; at most 5 s.'),
});

export const runtimeSpec = object(
  {
    runtime: required(text({ required: true }), { examples: ['python3.11'] }),
    rootfs: required(rootfs),
    sandbox_type: optional(sandboxType, '', 'Empty: the default executor.'),
    codePath: optional(text(), '', 'Code directory inside the sandbox; a mount has to bring it.'),
    handler: optional(text(), '', '`module.function`'),
    httpProfile: optional(httpProfileName, '', HTTP_PROFILE_DOC),
    dependencies: optional(dependencyMode, '', DEPENDENCIES_DOC),
    extendedHandler: optional(extendedHandler, { initializer: '', pre_stop: '', alarm: '', sleep: '' }),
    cpu: optional(integer(LIMITS.cpuMillis), LIMITS.cpuMillis.default, '1/1000 core'),
    memory: optional(integer(LIMITS.memoryMb), LIMITS.memoryMb.default, 'MB'),
  },
  { isMode: true },
);

/** `core/host-path.ts` explains why a source is wrong. */
export const agentMount = object<MountSpec>({
  source: required(text({ raw: true }), {
    pattern: `^(/|code://${SHA256_PATTERN.slice(1)})`,
    description: 'Absolute path on the host; or a code package, `code://<sha256>`, which is mounted read-only.',
  }),
  target: required(text(), 'Path inside the sandbox.'),
  readonly: optional(boolean, false),
});

const CREATE_FIELDS = {
  namespace: required(agentName),
  name: required(agentName),
  runtime_spec: maybe(runtimeSpec),
  urn: optional(text(), '', 'functionVersionUrn of a registered function (registered mode).'),
  template: optional(text(), '', {
    examples: ['base', 'code-interpreter-v1'],
    description:
      'Makes a sandbox without code, which takes commands, files and ports. Of `runtime_spec`, which may be absent, it takes `sandbox_type`, `rootfs`, `cpu` and `memory`.',
  }),
  image: optional(text(), '', {
    examples: ['python:3.12'],
    description:
      'Makes a sandbox without code from an image that the Docker daemon of the service has. Takes `cpu` and `memory` of `runtime_spec`; no mounts.',
  }),
  env_vars: optional(environment, {}),
  workspace: optional(text({ raw: true }), '', {
    pattern: '^(/.*)?$',
    description: 'Absolute path on the host; empty: none.',
  }),
  mounts: optional(list(agentMount, LIMITS.mounts), []),
  expose: maybe<Expose>(EXPOSE, 'Gives a port an address of its own: docs/guides/addresses.md.'),
  restart_policy: maybe(restartPolicy, 'What follows when its sandbox ends by itself; absent: `never`.'),
  durable: maybe(
    durable,
    '`true`: what the code keeps in `context.state` is saved before a call is answered, and survives crashes and restarts.',
  ),
  replace: optional(
    boolean,
    false,
    'The agent that holds the name keeps running until the new one is ready: its code is loaded and its initializer has run. ' +
      'Then the new agent gets the name and the old one is deleted. When the new one fails, it is removed and the old one keeps running. ' +
      'Without an agent of this name it is a create whose code must load.',
  ),
  ...LIFETIME_FIELDS,
};

/** The body of an agent create. */
export const AGENT_CREATE = object<ValueOf<typeof CREATE_FIELDS>>(CREATE_FIELDS, {
  schema: {
    anyOf: [
      { required: ['runtime_spec'] },
      { required: ['urn'], properties: { urn: { minLength: 1 } } },
      { required: ['template'], properties: { template: { minLength: 1 } } },
      { required: ['image'], properties: { image: { minLength: 1 } } },
    ],
  },
});

/**
 * Reads the body of an agent create request. Fails with `invalid_request` at the first problem. The decisions
 * fix the order: `namespace` and `name`, the mode, `runtime` and `rootfs.imageurl` (inline), the rest of the
 * spec, mounts, urn. `checkSources` checks afterwards that sources are safe and exist; the URN is resolved
 * after that.
 */
export function readAgentCreate(sentBody: JsonObject, tenant: string, defaults: ExecutorDefaults): AgentCreateRequest {
  const form = new Form(AGENT_CREATE, withTemplateSpec(sentBody), '', failAtFirst);
  const { namespace, name } = form.read('namespace', 'name');
  const isInline = form.sent('runtime_spec') !== undefined;
  const sent = form.sent('urn') ?? '';
  if (!isInline && typeof sent === 'string' && form.read('urn').urn === '') {
    throw invalidRequest('one of runtime_spec (inline) or urn (registered) is required');
  }
  const inline = isInline ? readRuntimeSpec(form.open('runtime_spec'), defaults) : undefined;
  const { template: named, image } = form.read('template', 'image');
  if (image !== '' && named !== '') throw invalidRequest('invalid request body: image: leave out template');
  const template = image === '' ? named : image;
  const { env_vars, workspace, mounts, restart_policy, expose, durable, replace, ...lifetime } = form.read(
    'env_vars',
    'workspace',
    'mounts',
    'restart_policy',
    'expose',
    'durable',
    'replace',
    ...(Object.keys(LIFETIME_FIELDS) as (keyof LifetimeFields)[]),
  );
  const problem = expose && addressProblem({ namespace, name });
  if (problem)
    throw invalidRequest(`invalid request body: expose: agent ${namespace}/${name} can have no address: ${problem}`);
  if (durable && template !== '')
    throw invalidRequest('invalid request body: durable: a sandbox without code has no state; leave out template');
  if (image !== '' && (workspace !== '' || mounts.length > 0)) {
    throw invalidRequest('invalid request body: image: root of such a sandbox could write to mounts; leave them out');
  }
  const ends = lifetimeOf(lifetime);
  const request = {
    ...{
      tenant,
      namespace,
      name,
      workspace,
      envVars: env_vars,
      mounts: mounts.map(withPackage),
    },
    ...ends,
    ...(replace && { replaces: true }),
    ...(restart_policy && { restartPolicy: restart_policy }),
    ...(expose && { expose }),
    ...(durable && { durable: withSleep(durable, ends.idleMs) }),
  };
  // A request with a `runtime_spec` ignores `urn`.
  if (inline === undefined) return { ...request, mode: 'registered', urn: form.read('urn').urn };
  const spec = resolveSpec(request, inline, defaults);
  if (template === '') return { ...request, mode: 'inline', spec };
  const sandbox = { ...spec, ...NO_CODE, template };
  return { ...request, mode: 'inline', spec: image === '' ? withTemplateFiles(sandbox, template) : sandbox };
}

/** Fields of the spec of a sandbox without code. */
const NO_CODE = { codePath: '', handler: '', initializer: '', preStop: '' };

/**
 * Returns the spec with the files of a template: those of the host, or of Rookery's own image in a cluster.
 * The name of a template is never pulled as an image. Fails with `invalid_request` for a container.
 */
function withTemplateFiles(spec: InstanceSpec, template: string): InstanceSpec {
  const { rootfs, sandboxType } = spec;
  if (rootfs.type !== 'image' || rootfs.imageUrl !== template) return spec;
  if (runsInCluster(sandboxType)) return { ...spec, rootfs: { ...rootfs, imageUrl: '' } };
  throw invalidRequest(
    `invalid request body: template: a ${sandboxType} sandbox has the files of an image, and ${template} is none: name an image instead`,
  );
}

/** Adds a `runtime_spec` with the defaults to a request that names only a template, or an image. */
function withTemplateSpec(body: JsonObject): JsonObject {
  const { template, image, runtime_spec } = body;
  if (typeof image === 'string' && image !== '') {
    const spec = { runtime: 'python3', ...(isJsonObject(runtime_spec) && runtime_spec) };
    return { ...body, runtime_spec: { ...spec, sandbox_type: IMAGE_SANDBOX_TYPE, rootfs: { imageurl: image } } };
  }
  if (typeof template !== 'string' || template === '' || (runtime_spec ?? null) !== null) return body;
  return { ...body, runtime_spec: { runtime: 'python3', rootfs: { imageurl: template } } };
}

/**
 * Returns the spec of an agent in registered mode. Mounts and `env_vars` of the caller are added to those of
 * the function and win.
 */
export function resolveRegistered(
  request: Omit<AgentCreateRequest, 'mode'>,
  fn: AgentFunction,
  defaults: ExecutorDefaults,
): InstanceSpec {
  return resolveSpec(request, fn, defaults);
}

/** Makes the mount of a code package read-only, because other instances share the package. */
export function withPackage(mount: MountSpec): MountSpec {
  if (!isCodeUrl(mount.source)) return mount;
  if (parseCodeUrl(mount.source) === null) {
    throw invalidRequest(`mount source must be an absolute path, or ${CODE_URL_SHAPE}: ${mount.source}`);
  }
  return { ...mount, readonly: true };
}

function readRuntimeSpec(spec: Form<ValueOf<typeof runtimeSpec.fields>>, defaults: ExecutorDefaults): AgentFunction {
  const { runtime } = spec.read('runtime');
  const files = spec.open('rootfs');
  const { imageurl } = files.read('imageurl');
  // In a cluster, an empty image means the image of the pod that fits.
  const driver = spec.sent('sandbox_type') || defaults.defaultSandboxType;
  if (imageurl === '' && !runsInCluster(String(driver))) failAtFirst(files.at('imageurl'), 'is required');
  const first = spec.read('sandbox_type', 'codePath', 'handler', 'dependencies', 'extendedHandler');
  const { httpProfile } = spec.read('httpProfile');
  const wrongProfile = httpProfileProblem(httpProfile, {
    ...{ runtime, handler: first.handler, initializer: first.extendedHandler.initializer },
  });
  if (wrongProfile !== null) failAtFirst(spec.at('httpProfile'), wrongProfile);
  const { user, ports } = files.read('user', 'ports');
  const parsedPorts = parsePorts(ports, files.at('ports'));
  const { cpu, memory } = spec.read('cpu', 'memory');
  const entries = entriesOf(first.extendedHandler);
  return {
    functionName: '',
    functionVersion: '',
    functionUrn: '',
    sandboxType: first.sandbox_type,
    runtime,
    codePath: first.codePath,
    httpProfile,
    dependencies: first.dependencies,
    handler: first.handler,
    initializer: first.extendedHandler.initializer,
    preStop: first.extendedHandler.pre_stop,
    ...(entries && { entries }),
    imageUrl: imageurl,
    user,
    ports: parsedPorts,
    mounts: [],
    cpuMillis: cpu,
    memoryMb: memory,
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
  const { entries } = fn;
  if (entries && !request.durable) {
    const [name] = Object.keys(entries);
    const where = fn.functionUrn === '' ? 'runtime_spec' : 'the function';
    throw invalidRequest(`invalid request body: ${where}.extendedHandler.${name} needs durable`);
  }
  const sandboxType = fn.sandboxType === '' ? defaultSandboxType : fn.sandboxType;
  const hasImage = runsImages(sandboxType);
  const mounts = [...fn.mounts, ...request.mounts];
  if (request.durable?.files) {
    const { files } = request.durable;
    const code = fn.codePath.startsWith('/') ? [fn.codePath] : [];
    assertFilesFit({ files }, sandboxType, [...code, ...mounts.map(({ target }) => target)]);
  }
  return {
    tenant: request.tenant,
    namespace: request.namespace,
    name: request.name,
    sandboxType,
    runtime: fn.runtime,
    ...(fn.httpProfile && { httpProfile: fn.httpProfile }),
    codePath: fn.codePath,
    handler: fn.handler,
    initializer: fn.initializer,
    preStop: fn.preStop,
    rootfs: { type: hasImage ? 'image' : 'host', imageUrl: fn.imageUrl, user: fn.user },
    ports: fn.ports,
    ...(request.expose && { expose: request.expose }),
    cpuMillis: fn.cpuMillis,
    memoryMb: fn.memoryMb,
    env: { ...fn.environment, ...request.envVars },
    workspace: request.workspace,
    mounts,
    callTimeoutMs: fn.callTimeoutMs,
    initTimeoutMs: fn.initTimeoutMs,
    preStopTimeoutMs: fn.preStopTimeoutMs,
    concurrency: 1,
    ...(fn.dependencies && { dependencies: fn.dependencies }),
    ...(request.restartPolicy && { restartPolicy: request.restartPolicy }),
    ...(request.durable && { durable: { ...request.durable, ...(entries && { entries }) } }),
    ...(request.labels && { labels: request.labels }),
    ...(request.ttlMs && { ttlMs: request.ttlMs }),
    ...(request.idleMs && { idleMs: request.idleMs }),
    ...(request.onExpiry && { onExpiry: request.onExpiry }),
    ...(fn.poolId && { pool: { id: fn.poolId, labels: [] } }),
    functionName: fn.functionName,
    functionVersion: fn.functionVersion,
    functionUrn: fn.functionUrn,
  };
}
