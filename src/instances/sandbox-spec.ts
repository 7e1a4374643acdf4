import type { Environment } from '../core/environment.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import type { MountSpec } from '../core/mount.ts';
import { type ResolvedVariables, resolveVariables, type SecretSource, secretVariables } from '../core/secret.ts';
import { executionOf, unknownRuntimeHint } from '../runtime/executors.ts';
import type { Init } from '../runtime/protocol.ts';
import type { SandboxDriver, SandboxSpec } from '../sandbox/driver.ts';
import type { Start } from './instances.ts';

/** What the installation decides for every sandbox. */
export interface SandboxRules {
  readonly maxProcesses: number;
  readonly network: 'host' | 'none';
  readonly requireIsolation: boolean;
  /** That of the server: where programs of the host are looked for (Java). None of it reaches a sandbox. Absent: in the usual places only. */
  readonly hostEnvironment?: Environment;
}

/** Where programs of the host are, inside. */
export const HOST_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** What an instance is started with: the values of the secrets that its environment refers to are in it. It is never written down. */
export interface StartSpec extends Omit<InstanceSpec, 'env'> {
  readonly env: ResolvedVariables;
  /** The variables whose values are secrets. */
  readonly secretVariables: readonly string[];
}

/** The spec with the values of its secrets as they are now. Fails with `failed_precondition`, which names what is missing. */
export async function withSecrets(spec: InstanceSpec, secrets: SecretSource | undefined): Promise<StartSpec> {
  const env = await resolveVariables(spec.tenant, spec.env, secrets);
  return { ...spec, env, secretVariables: secretVariables(spec.env) };
}

/**
 * What a driver gets for an instance. Fails with `failed_precondition` when its runtime value cannot be run here.
 *
 * Environment: `PATH` (not in an image, which has its own), `LANG` and `HOME`, then what the caller and the function set, then the platform's own names.
 * `HOME` is the workspace; without one the user's own home in an image (`/root`, `/home/<user>`) and `/tmp` on the
 * host's files, where a home of the host is never shown. The working directory is the workspace, else the code directory when a
 * mount or the image can hold it, else `/`.
 */
export function toSandboxSpec(instanceId: string, secret: string, spec: StartSpec, rules: SandboxRules): SandboxSpec {
  const { command, mounts: executorMounts } = executionOf(spec, rules.hostEnvironment);
  const workspaceTarget = workspacePath(spec.rootfs.user);
  const hasWorkspace = spec.workspace !== '';
  const mounts = hasWorkspace
    ? [{ source: spec.workspace, target: workspaceTarget, readonly: false }, ...spec.mounts]
    : spec.mounts;
  return {
    instanceId,
    tenant: spec.tenant,
    command,
    secret,
    rootfs: spec.rootfs,
    env: {
      // An image says itself where its programs are.
      ...(spec.rootfs.type === 'host' ? { PATH: HOST_PATH } : {}),
      LANG: 'C.UTF-8',
      HOME: hasWorkspace ? workspaceTarget : homeWithoutWorkspace(spec),
      ...spec.env,
      ROOKERY_INSTANCE_ID: instanceId,
      ROOKERY_TENANT: spec.tenant,
      ROOKERY_FUNCTION: spec.functionName,
      ROOKERY_VERSION: spec.functionVersion,
      ROOKERY_CODE_PATH: spec.codePath,
      ROOKERY_SESSION_CTX_ID: spec.sessionContext ?? '',
    },
    ...(spec.secretVariables.length > 0 && { secretVariables: spec.secretVariables }),
    workingDir: hasWorkspace ? workspaceTarget : canHoldCode(spec) ? spec.codePath : '/',
    mounts,
    platformMounts: [...executorMounts, ...(spec.platformMounts ?? [])],
    ports: spec.ports,
    cpuMillis: spec.cpuMillis,
    memoryMb: spec.memoryMb,
    maxProcesses: rules.maxProcesses,
    maxOpenFiles: LIMITS.openFiles,
    network: rules.network,
    requireIsolation: rules.requireIsolation,
    ...(spec.pool && { pool: spec.pool }),
  };
}

/**
 * How an instance with a runtime is started. Fails as `toSandboxSpec` does.
 */
export function toStart(
  driver: SandboxDriver,
  { id, secret }: { readonly id: string; readonly secret: string },
  spec: StartSpec,
  rules: SandboxRules,
): Start {
  return {
    driver,
    sandbox: toSandboxSpec(id, secret, spec, rules),
    init: toInit(id, spec),
    hint: unknownRuntimeHint(spec),
  };
}

/** What the runtime inside gets to know, once. */
export function toInit(instanceId: string, spec: Omit<InstanceSpec, 'env'>): Init {
  return {
    codePath: spec.codePath,
    handler: spec.handler,
    initializer: spec.initializer,
    preStop: spec.preStop,
    initTimeoutMs: spec.initTimeoutMs,
    concurrency: spec.concurrency,
    maxResultBytes: LIMITS.responseBodyBytes,
    instanceId,
    tenant: spec.tenant,
    namespace: spec.namespace,
    name: spec.name,
    functionName: spec.functionName,
    version: spec.functionVersion,
    memoryMb: spec.memoryMb,
    cpuMillis: spec.cpuMillis,
  };
}

/** Where the workspace of a user stands inside: `/home/<user>`, `/workspace` without one. */
export function workspacePath(user: string): string {
  return user === '' ? '/workspace' : `/home/${nameOf(user)}`;
}

function homeWithoutWorkspace({ rootfs }: Pick<InstanceSpec, 'rootfs'>): string {
  if (rootfs.type === 'host') return '/tmp';
  return rootfs.user === '' || nameOf(rootfs.user) === 'root' ? '/root' : `/home/${nameOf(rootfs.user)}`;
}

/** `user` of `user:group`. */
function nameOf(user: string): string {
  const colon = user.indexOf(':');
  return colon === -1 ? user : user.slice(0, colon);
}

/** Whether the code directory can be there when the sandbox starts; the code path is otherwise only a label. */
function canHoldCode({ codePath, mounts, platformMounts = [], rootfs }: StartSpec): boolean {
  if (!codePath.startsWith('/')) return false;
  return (
    rootfs.type === 'image' ||
    [...mounts, ...platformMounts].some(({ target }: MountSpec) => isWithin(codePath, target))
  );
}

function isWithin(path: string, directory: string): boolean {
  const prefix = directory.endsWith('/') ? directory : `${directory}/`;
  return path === directory || `${path}/` === prefix || path.startsWith(prefix);
}
