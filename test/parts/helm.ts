import { execFile, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../../scripts/command.ts';
import { KEPT_DIR } from './kept.ts';

const TOOLS = join(KEPT_DIR, 'rookery-test-tools');
const BINARY = join(TOOLS, 'helm');
/** `.ci/run` makes the same one. */
const PACKAGE = 'helm.sh/helm/v3/cmd/helm@v3.19.4';
const BUILD_TIMEOUT_MS = 600_000;
const RUN_TIMEOUT_MS = 60_000;

export const CHART = join(ROOT, 'deploy/chart');

/** Why there is no Helm here; null when there is one. Builds it once for each machine: not in a test, whose time is bounded. */
export function whyNoHelm(): string | null {
  if (existsSync(BINARY)) return null;
  const { status, stderr, error } = spawnSync('go', ['install', PACKAGE], {
    env: { ...process.env, GOBIN: TOOLS },
    encoding: 'utf8',
    timeout: BUILD_TIMEOUT_MS,
  });
  if (error !== undefined) return 'Go is not installed, which builds Helm';
  return status === 0 ? null : `Helm cannot be built: ${stderr.trim().split('\n').at(-1)}`;
}

/** Runs Helm to its end, and returns what it wrote. Fails with what it said. `kubeconfig`: of the cluster, where the command needs one. */
export async function helm(args: readonly string[], kubeconfig?: string): Promise<string> {
  const { stdout } = await promisify(execFile)(BINARY, args, {
    // Nothing of a person's own Helm is read.
    env: {
      PATH: process.env.PATH ?? '',
      HOME: '/nonexistent',
      ...(kubeconfig !== undefined && { KUBECONFIG: kubeconfig }),
    },
    timeout: RUN_TIMEOUT_MS,
    maxBuffer: 16 * 1024 * 1024,
  });
  return stdout;
}
