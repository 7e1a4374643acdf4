import { execFile } from 'node:child_process';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';

const PACKAGE = 'rookery';
const TIMEOUT_MS = 60_000;
/** npm may print messages about its settings in addition to the answer. */
const MAX_OUTPUT_BYTES = 1024 * 1024;

interface Published {
  readonly version: string;
  /** The newest migration of the version; null when the package does not name it. */
  readonly schema: string | null;
}

/**
 * Returns the newest version in `registry`, or in the registry of npm's configuration (files, variables,
 * proxy). Fails with a `CliError`.
 */
export async function newestVersion(io: Io, registry: string | undefined): Promise<Published> {
  const args = ['view', PACKAGE, 'name', 'version', 'rookery.schema', '--json', '--prefer-online', '--fetch-retries=0'];
  if (registry !== undefined) args.push(`--registry=${registry}`);
  const { code, out, err } = await runNpm(io, args);
  if (code === 'ENOENT') {
    throw new CliError(
      'npm is not installed, and only npm knows the configured registry: check where you got the package.',
    );
  }
  const answer = objectIn(out);
  const { version, 'rookery.schema': schema, error } = answer as Readonly<Record<string, unknown>>;
  if (typeof version === 'string') return { version, schema: typeof schema === 'string' ? schema : null };
  const problem = (error ?? {}) as { readonly code?: unknown; readonly summary?: unknown };
  if (problem.code === 'E404') {
    throw new CliError(
      `The registry has no package ${PACKAGE}. Is it the one that it was installed from? --registry names another.`,
    );
  }
  const reason =
    String(problem.summary ?? err)
      .trim()
      .split('\n')[0] || 'npm printed nothing';
  throw new CliError(`The registry cannot be asked: ${reason}. --registry names another.`, EXIT.unreachable);
}

/**
 * Returns true if `version` is newer than `than`. A release is newer than its pre-releases (`1.2.0-rc.1`).
 */
export function isNewer(version: string, than: string): boolean {
  const [left, right] = [version, than].map(text => (text.split(/[-+]/, 1)[0] ?? '').split('.').map(Number));
  for (const at of [0, 1, 2]) {
    const difference = (left?.[at] ?? 0) - (right?.[at] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return than.includes('-') && !version.includes('-');
}

interface Ran {
  readonly code: string | number | null;
  readonly out: string;
  readonly err: string;
}

function runNpm({ environment, signal }: Io, args: readonly string[]): Promise<Ran> {
  return new Promise(resolve => {
    // Avoids the working directory, whose .npmrc belongs to a project.
    const options = { env: environment, cwd: '/', signal, timeout: TIMEOUT_MS, maxBuffer: MAX_OUTPUT_BYTES };
    execFile('npm', args, options, (error, out, err) => resolve({ code: error?.code ?? null, out, err }));
  });
}

function objectIn(text: string): object {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
