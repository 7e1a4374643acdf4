import { internal } from '../../core/error.ts';
import type { ExitResult, SandboxHandle } from '../driver.ts';
import { sandboxDirectory, socketPath } from './directory.ts';

/** Contents of a container's handle. */
export interface DockerSandbox {
  readonly instanceId: string;
  /** Id of the container; `''` when only its directory is left. */
  readonly container: string;
  readonly directory: string;
}

/** Returns the handle of a container. `dockerDir` contains the directories of all sandboxes. */
export function makeHandle(dockerDir: string, instanceId: string, container: string): SandboxHandle {
  const directory = sandboxDirectory(dockerDir, instanceId);
  return {
    version: 1,
    driver: 'docker',
    instanceId,
    endpoint: { kind: 'unix', path: socketPath(directory) },
    data: { container, directory },
  };
}

/**
 * Returns the contents of a handle. Fails with `internal` when the handle is not of this driver and version.
 */
export function readHandle(handle: SandboxHandle): DockerSandbox {
  const { container, directory } = handle.data;
  const isOurs = handle.version === 1 && handle.driver === 'docker';
  if (!isOurs || typeof container !== 'string' || typeof directory !== 'string') {
    throw internal(
      `expected a handle of the docker driver, version 1; got driver ${handle.driver}, version ${handle.version}`,
    );
  }
  return { instanceId: handle.instanceId, container, directory };
}

/** Fields of the Engine's container state that describe an end. */
export interface ContainerState {
  readonly Status?: string;
  readonly Running: boolean;
  readonly OOMKilled: boolean;
  readonly ExitCode: number;
  readonly FinishedAt: string;
}

const SIGNALS: Readonly<Record<number, string>> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  3: 'SIGQUIT',
  4: 'SIGILL',
  5: 'SIGTRAP',
  6: 'SIGABRT',
  7: 'SIGBUS',
  8: 'SIGFPE',
  9: 'SIGKILL',
  10: 'SIGUSR1',
  11: 'SIGSEGV',
  12: 'SIGUSR2',
  13: 'SIGPIPE',
  14: 'SIGALRM',
  15: 'SIGTERM',
  24: 'SIGXCPU',
  25: 'SIGXFSZ',
  31: 'SIGSYS',
};

/** Converts the Engine's state to an exit. The container's init reports a signal as 128 + signal number. */
export function toExit(state: ContainerState): ExitResult {
  const atMs = Date.parse(state.FinishedAt);
  const signal = state.ExitCode > 128 ? (SIGNALS[state.ExitCode - 128] ?? null) : null;
  return {
    // A container that never started has no exit code.
    code: signal !== null || state.Status === 'created' ? null : state.ExitCode,
    signal,
    oomKilled: state.OOMKilled && signal === 'SIGKILL',
    atMs: Number.isFinite(atMs) && atMs > 0 ? atMs : Date.now(),
  };
}
