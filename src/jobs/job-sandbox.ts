import { createHash } from 'node:crypto';
import { mkdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { askPython, type Python } from '../builds/python.ts';
import type { MountSpec } from '../core/instance.ts';
import type { Job, JobResources } from '../core/job.ts';
import { LIMITS } from '../core/limits.ts';
import { type ResolvedVariables, secretVariables } from '../core/secret.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import type { SandboxSpec } from '../sandbox/driver.ts';
import type { PlacedFiles } from './job-files.ts';
import { type JobPaths, PYTHON_BIN } from './paths.ts';

export interface JobSandboxRules extends SandboxRules {
  /** Variables of every job; variables that the job sets itself override them. */
  readonly environment: Readonly<Record<string, string>>;
  /**
   * `image`: jobs run in an image and use its Python. Of this machine they see only the files that are
   * mounted.
   */
  readonly rootfs: 'host' | 'image';
  /** Defaults for a job that names no size. */
  readonly cpuMillis: number;
  readonly memoryMb: number;
}

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Virtual environment as a job sees it. */
export interface PlacedEnvironment {
  /** Path inside the sandbox. */
  readonly path: string;
  readonly mount: MountSpec;
}

/** Parts that were prepared for a job. */
export interface JobParts {
  readonly files: PlacedFiles;
  readonly python: JobPython | null;
  readonly environment: PlacedEnvironment | null;
  /** The variables of the job, with the values of its secrets. */
  readonly variables: ResolvedVariables;
}

/** Returns the resources that the sandbox of a job may use. */
export function sizeOfSandbox(
  { cpuMillis, memoryMb }: JobResources,
  rules: Pick<JobSandboxRules, 'cpuMillis' | 'memoryMb'>,
): Pick<SandboxSpec, 'cpuMillis' | 'memoryMb'> {
  return {
    cpuMillis: cpuMillis || rules.cpuMillis,
    memoryMb: Math.max(memoryMb || rules.memoryMb, LIMITS.memoryMb.min),
  };
}

/** Returns the sandbox and the command of a job, for the driver. */
export function toJobSandbox(
  job: Job,
  instanceId: string,
  secret: string,
  parts: JobParts,
  rules: JobSandboxRules,
): SandboxSpec {
  const { files, python, environment, variables } = parts;
  const { resources, runtimeEnv, metadata, rawRuntimeEnv } = job.spec;
  const secretNames = secretVariables(runtimeEnv.envVars);
  const base: Record<string, string> = {
    PATH: [...(environment ? [`${environment.path}/bin`] : []), ...(python?.binDirs ?? []), PATH].join(':'),
    LANG: 'C.UTF-8',
    HOME: files.workingDir,
    PYTHONUNBUFFERED: '1',
    PYTHONPATH: files.pythonPath.join(':'),
    ...(environment ? { VIRTUAL_ENV: environment.path } : {}),
    ...rules.environment,
  };
  return {
    instanceId,
    tenant: job.tenant,
    command: { kind: 'exec', argv: ['/bin/sh', '-c', job.spec.entrypoint] },
    secret,
    rootfs: { type: rules.rootfs, imageUrl: '', user: '' },
    env: {
      ...base,
      ...expand(variables, base, secretNames),
      RAY_JOB_CONFIG_JSON_ENV_VAR: JSON.stringify({
        runtime_env: rawRuntimeEnv,
        metadata: { job_submission_id: job.id, job_name: job.id, ...metadata },
      }),
      ROOKERY_JOB_ID: job.id,
      ROOKERY_JOB_ATTEMPT: String(job.attempt),
      ROOKERY_INSTANCE_ID: instanceId,
      ROOKERY_TENANT: job.tenant,
    },
    ...(secretNames.length > 0 && { secretVariables: secretNames }),
    workingDir: files.workingDir,
    mounts: files.mounts,
    platformMounts: [...(python?.mounts ?? []), ...(environment ? [environment.mount] : []), ...files.platformMounts],
    ports: [],
    ...sizeOfSandbox(resources, rules),
    maxProcesses: rules.maxProcesses,
    maxOpenFiles: LIMITS.openFiles,
    network: rules.network,
    requireIsolation: rules.requireIsolation,
    // A job that has begun must never begin again.
    survivesCaller: true,
    runsOnce: true,
  };
}

/**
 * Replaces `${NAME}` and `$NAME` in values by the variables of `base`, as Ray does. A `PYTHONPATH` of the
 * caller comes before that of the job. Values of secrets stay unchanged.
 */
function expand(
  variables: ResolvedVariables,
  base: Readonly<Record<string, string>>,
  secretNames: readonly string[],
): Record<string, string> {
  const expanded = Object.entries(variables).map(([name, value]): [string, string] => {
    if (secretNames.includes(name)) return [name, value];
    const text = value.replace(
      /\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))/g,
      (whole, braced?: string, bare?: string) => {
        const name = (braced ?? bare) as string;
        return Object.hasOwn(base, name) ? (base[name] as string) : whole;
      },
    );
    return [name, name === 'PYTHONPATH' && base.PYTHONPATH ? `${text}:${base.PYTHONPATH}` : text];
  });
  return Object.fromEntries(expanded);
}

/** Interpreter that `python` names in a job. */
export interface JobPython extends Python {
  /** Directories inside the sandbox, for `PATH`. */
  readonly binDirs: readonly string[];
}

/** Makes an interpreter usable in jobs, under the names `python` and `python3`, with its libraries. */
export async function provePython(path: string, paths: JobPaths): Promise<JobPython> {
  const python = await askPython(path);
  const bin = join(paths.pythons, createHash('sha256').update(path).digest('hex').slice(0, 16));
  await mkdir(bin, { recursive: true, mode: 0o755 });
  for (const name of ['python', 'python3']) {
    await symlink(path, join(bin, name)).catch(error => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
  const inside = paths.inside(bin, PYTHON_BIN);
  return {
    ...python,
    binDirs: [inside, dirname(path)],
    mounts: [{ source: bin, target: inside, readonly: true }, ...python.mounts],
  };
}
