import type { Environment } from '../core/environment.ts';
import { httpProfileVariables } from '../core/http-profiles.ts';
import type { InstanceSpec, MountSpec } from '../core/instance.ts';
import { LAMBDA_RUNTIME, lambdaVariables } from '../core/lambda-name.ts';
import { LIMITS } from '../core/limits.ts';
import { IMAGE_SANDBOX_TYPE } from '../core/sandbox-types.ts';
import { type ResolvedVariables, resolveVariables, type SecretSource, secretVariables } from '../core/secret.ts';
import { executionOf, explainStart } from '../runtime/executors.ts';
import type { Init } from '../runtime/protocol.ts';
import type { SandboxDriver, SandboxSpec } from '../sandbox/driver.ts';
import { builtVariables } from '../templates/built.ts';
import { imageTools, marksOf, templateSandbox } from '../templates/sandbox.ts';
import type { Start } from './start.ts';

/** Settings of the installation that apply to every sandbox. */
export interface SandboxRules {
  readonly maxProcesses: number;
  readonly network: 'host' | 'none';
  readonly requireIsolation: boolean;
  /**
   * Environment of the server, used to find programs of the host (Java). Sandboxes do not receive it. Absent:
   * only the usual directories are searched.
   */
  readonly hostEnvironment?: Environment;
  /** Directory of the platform's Python packages. Absent: sandboxes with a template get no stand-ins. */
  readonly programsDir?: string;
}

/** PATH of a sandbox that shows the files of the host. */
export const HOST_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Spec of a start, with the values of the secrets in its environment. Must never be stored. */
export interface StartSpec extends Omit<InstanceSpec, 'env'> {
  readonly env: ResolvedVariables;
  /** Names of the variables whose values are secrets. */
  readonly secretVariables: readonly string[];
}

/**
 * Returns the spec with the current values of its secrets. Fails with `failed_precondition` and the name of a
 * missing secret.
 */
export async function withSecrets(spec: InstanceSpec, secrets: SecretSource | undefined): Promise<StartSpec> {
  const env = await resolveVariables(spec.tenant, spec.env, secrets);
  return { ...spec, env, secretVariables: secretVariables(spec.env) };
}

/**
 * Returns the driver's spec of an instance. Fails with `failed_precondition` if its runtime value cannot run
 * here.
 *
 * Environment: `PATH` (an image has its own), `LANG` and `HOME`, then the caller's and the function's
 * variables, then the platform's names. `HOME` is the workspace. Without a workspace, `HOME` is the user's
 * home in an image (`/root`, `/home/<user>`). The docker driver uses `/tmp` if that does not exist. On the
 * host's files `HOME` is `/tmp`, because a home of the host is never shown. The working directory is the
 * workspace, else the code directory if a mount or the image can hold it, else `/`.
 *
 * A sandbox with a template has accounts of its own, on the host's files and in a container; it begins in the
 * home of `user`.
 */
export function toSandboxSpec(instanceId: string, secret: string, spec: StartSpec, rules: SandboxRules): SandboxSpec {
  const { command, mounts: executorMounts } = executionOf(spec, rules.hostEnvironment);
  const workspaceTarget = workspacePath(spec.rootfs.user);
  const hasWorkspace = spec.workspace !== '';
  const mounts = hasWorkspace
    ? [{ source: spec.workspace, target: workspaceTarget, readonly: false }, ...spec.mounts]
    : spec.mounts;
  const { template } = spec;
  const own =
    template !== undefined && spec.rootfs.type === 'host' ? templateSandbox(HOST_PATH, rules.programsDir) : undefined;
  const isOfImage = template !== undefined && spec.sandboxType === IMAGE_SANDBOX_TYPE;
  return {
    instanceId,
    tenant: spec.tenant,
    command,
    secret,
    rootfs: spec.rootfs,
    ...((own || isOfImage) && { hasAccounts: true }),
    env: {
      // An image defines its own PATH.
      ...(spec.rootfs.type === 'host' ? { PATH: HOST_PATH } : {}),
      LANG: 'C.UTF-8',
      HOME: hasWorkspace ? workspaceTarget : homeWithoutWorkspace(spec),
      ...own?.env,
      ...(own && spec.built && builtVariables(own.env.PATH ?? HOST_PATH)),
      ...(spec.runtime === LAMBDA_RUNTIME ? lambdaVariables(instanceId, spec) : spec.env),
      ...(template !== undefined && marksOf(template, instanceId)),
      ...httpProfileVariables(spec.httpProfile, spec),
      ROOKERY_INSTANCE_ID: instanceId,
      ROOKERY_TENANT: spec.tenant,
      ROOKERY_FUNCTION: spec.functionName,
      ROOKERY_VERSION: spec.functionVersion,
      ROOKERY_CODE_PATH: spec.codePath,
      ROOKERY_SESSION_CTX_ID: spec.sessionContext ?? '',
    },
    ...(spec.secretVariables.length > 0 && { secretVariables: spec.secretVariables }),
    workingDir: own?.workingDir ?? (hasWorkspace ? workspaceTarget : canHoldCode(spec) ? spec.codePath : '/'),
    mounts,
    platformMounts: [
      ...executorMounts,
      ...(own?.mounts ?? []),
      ...(isOfImage ? imageTools(rules.programsDir) : []),
      ...(spec.platformMounts ?? []),
    ],
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

/** Returns how to start an instance with a runtime. Fails as `toSandboxSpec` does. */
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
    // A sandbox without code has no runtime that could be the reason.
    explain: message => (spec.template === undefined ? explainStart(spec, message) : message),
  };
}

/** Returns the one-time initialization message for the runtime. */
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

/**
 * Returns the path of a user's workspace inside the sandbox: `/home/<user>`, or `/workspace` without a user.
 */
export function workspacePath(user: string): string {
  return user === '' ? '/workspace' : `/home/${nameOf(user)}`;
}

function homeWithoutWorkspace({ rootfs }: Pick<InstanceSpec, 'rootfs'>): string {
  if (rootfs.type === 'host') return '/tmp';
  return rootfs.user === '' || nameOf(rootfs.user) === 'root' ? '/root' : `/home/${nameOf(rootfs.user)}`;
}

/** Returns the `user` of `user:group`. */
function nameOf(user: string): string {
  const colon = user.indexOf(':');
  return colon === -1 ? user : user.slice(0, colon);
}

/**
 * Returns true if the code directory can exist when the sandbox starts. Otherwise the code path is only a
 * label.
 */
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
