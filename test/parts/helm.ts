import { execFile, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../../scripts/command.ts';
import { KEPT_DIR } from './kept.ts';

const TOOLS = join(KEPT_DIR, 'rookery-test-tools');
const BINARY = join(TOOLS, 'helm');
/** The version that `.ci/run` builds too. */
const PACKAGE = 'helm.sh/helm/v3/cmd/helm@v3.19.4';
const BUILD_TIMEOUT_MS = 600_000;
const RUN_TIMEOUT_MS = 60_000;

export const CHART = join(ROOT, 'deploy/chart');

/**
 * Returns why Helm is missing, or null. Builds Helm once for each machine, before the tests, which have a
 * time limit.
 */
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

/**
 * Runs Helm until it exits and returns stdout; fails with its output. Commands that use the cluster need
 * `kubeconfig`.
 */
export async function helm(args: readonly string[], kubeconfig?: string): Promise<string> {
  const { stdout } = await promisify(execFile)(BINARY, args, {
    // The environment excludes the user's own Helm configuration.
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
