import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition } from '../../core/error.ts';
import type { SandboxSpec } from '../driver.ts';
import type { BridgeRules } from './bridge-rules.ts';
import type { Engine } from './engine.ts';

/** Features of a daemon, as the daemon reports them. */
export interface DaemonFacts {
  /** Layers of isolation that apply to its containers. */
  readonly isolation: readonly string[];
  readonly hasCpuLimit: boolean;
  readonly hasMemoryLimit: boolean;
  readonly hasPidsLimit: boolean;
  /** Missing features, one sentence each. */
  readonly degraded: readonly string[];
}

/** Fields of the answer to `GET /info` that the driver reads. */
interface DaemonInfo {
  readonly OSType?: string;
  readonly Architecture?: string;
  readonly MemoryLimit?: boolean;
  readonly SwapLimit?: boolean;
  readonly CPUShares?: boolean;
  readonly PidsLimit?: boolean;
  readonly SecurityOptions?: readonly string[] | null;
}

/** Architectures that the seccomp filter supports. */
const FILTERED = ['x86_64', 'aarch64'];
/** Layers that every daemon gives its containers. */
const ALWAYS = ['mount', 'pid', 'ipc', 'uts', 'net', 'no_new_privs', 'capabilities'];

/**
 * Asks the daemon for its features. Fails with `unavailable`, or with `failed_precondition` when the daemon
 * runs no Linux containers.
 */
export async function askDaemon(engine: Engine, rules: BridgeRules): Promise<DaemonFacts> {
  const [info, missingRules] = await Promise.all([infoOf(engine), rules.missing()]);
  if (info.OSType !== undefined && info.OSType !== 'linux') {
    throw failedPrecondition(
      `the daemon at ${engine.endpoint.host} runs ${info.OSType} containers, and only Linux ones are used`,
    );
  }
  const options = optionsOf(info);
  const hasSeccomp = options.includes('seccomp');
  // A limit counts as supported unless the daemon denies it.
  const hasCpuLimit = info.CPUShares !== false;
  const hasMemoryLimit = info.MemoryLimit !== false;
  const hasPidsLimit = info.PidsLimit !== false;
  const limits: readonly (readonly [string, boolean, string])[] = [
    ['cgroup.cpu', hasCpuLimit, 'cpu shares do not hold: the kernel or the daemon has no cpu control group'],
    [
      'cgroup.memory',
      hasMemoryLimit,
      'memory limits do not hold: the kernel or the daemon has no memory control group',
    ],
    [
      'cgroup.pids',
      hasPidsLimit,
      'the number of processes is not limited: the kernel or the daemon has no pids control group',
    ],
    [
      'seccomp',
      supportsFilter(info),
      hasSeccomp
        ? `system calls are filtered by the daemon’s own rules alone, which let set-user-id bits pass: ours are for ${FILTERED.join(' and ')}`
        : 'system calls are not filtered: the daemon runs without seccomp',
    ],
  ];
  return {
    isolation: [
      ...ALWAYS,
      ...limits.filter(([, holds]) => holds).map(([layer]) => layer),
      ...(options.includes('apparmor') ? ['apparmor'] : []),
      ...(options.includes('selinux') ? ['selinux'] : []),
      ...(options.includes('userns') || options.includes('rootless') ? ['user'] : []),
    ],
    hasCpuLimit,
    hasMemoryLimit,
    hasPidsLimit,
    degraded: [
      ...limits.filter(([, holds]) => !holds).map(([, , sentence]) => sentence),
      ...(missingRules === null ? [] : [missingRules]),
    ],
  };
}

/** Returns true when the daemon's containers can use the seccomp filter. Fails with `unavailable`. */
export async function canFilter(engine: Engine): Promise<boolean> {
  return supportsFilter(await infoOf(engine));
}

async function infoOf(engine: Engine): Promise<DaemonInfo> {
  return (await engine.request('tell about itself', docker => docker.info())) as DaemonInfo;
}

function optionsOf(info: DaemonInfo): readonly string[] {
  return (info.SecurityOptions ?? []).map(option => /^name=([^,]+)/.exec(option)?.[1] ?? option);
}

function supportsFilter(info: DaemonInfo): boolean {
  return (
    optionsOf(info).includes('seccomp') && (info.Architecture === undefined || FILTERED.includes(info.Architecture))
  );
}

/** Fails with `failed_precondition` when the spec requires isolation and the daemon lacks a layer. */
export function refuseWithoutIsolation(spec: SandboxSpec, { degraded }: DaemonFacts): void {
  if (!spec.requireIsolation || degraded.length === 0) return;
  throw failedPrecondition(`isolation is required, but it is incomplete on this machine: ${degraded.join('; ')}`);
}

/**
 * Security options of every container: `no-new-privileges`, and Rookery's seccomp filter instead of the
 * daemon's. The daemon's filter permits modes with set-user-id bits. A daemon without seccomp would refuse a
 * container with a filter, so it gets none.
 */
export class SecurityOptions {
  readonly #engine: Engine;
  readonly #pythonDir: string;
  #options: Promise<readonly string[]> | undefined;

  /** `pythonDir`: the directory of `rookery_zygote`. */
  constructor(engine: Engine, pythonDir: string) {
    this.#engine = engine;
    this.#pythonDir = pythonDir;
  }

  /** Returns the options in the Engine's format. Reads the facts of the daemon once. */
  get(): Promise<readonly string[]> {
    if (this.#options === undefined) {
      const asking = this.#ask();
      this.#options = asking;
      asking.catch(() => {
        this.#options = undefined;
      });
    }
    return this.#options;
  }

  async #ask(): Promise<readonly string[]> {
    const [hasFilter, profile] = await Promise.all([canFilter(this.#engine), readProfile(this.#pythonDir)]);
    return hasFilter ? ['no-new-privileges', `seccomp=${profile}`] : ['no-new-privileges'];
  }
}

async function readProfile(pythonDir: string): Promise<string> {
  const text = await readFile(join(pythonDir, 'rookery_zygote', 'container_filter.json'), 'utf8');
  // Every create request contains the profile, so drop its white space.
  return JSON.stringify(JSON.parse(text));
}
