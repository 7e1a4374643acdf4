import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { KEPT_DIR } from '../parts/kept.ts';

/** Releases of the SDKs that must work unmodified: the newest and the oldest supported ones. */
const RELEASES = {
  python: ['e2b==2.63.0', 'e2b-code-interpreter==2.11.5'],
  'python-old': ['e2b==2.8.0'],
  agents: ['openai-agents==0.24.0', 'langchain-e2b==0.0.5', 'e2b==2.31.0', 'e2b-code-interpreter==2.8.1'],
  node: ['e2b@2.51.0', '@e2b/code-interpreter@2.8.0'],
  'node-old': ['e2b@2.14.1'],
} as const;

/** Name of an installation of SDKs. */
export type Environment = keyof typeof RELEASES;

/** Directory that is kept between runs, because installing takes longer than the tests. */
const HOME = join(KEPT_DIR, 'rookery-test-tools/e2b');
const INSTALL_TIMEOUT_MS = 300_000;

/** Returns the directory of an installation. */
export function homeOf(environment: Environment): string {
  return join(HOME, environment);
}

/** Returns true for an installation of Node.js packages. */
export function isNode(environment: Environment): boolean {
  return environment.startsWith('node');
}

/** Returns why the SDKs are missing, or null. Installs nothing. */
export function whyNoE2b(): string | null {
  const missing = namesOf().filter(environment => !existsSync(markOf(environment)));
  return missing.length === 0 ? null : `the SDKs of ${missing.join(', ')} are not installed`;
}

/** Installs what is missing. Throws an error with the installer's output if an installation fails. */
export function installE2b(): void {
  for (const environment of namesOf()) {
    if (existsSync(markOf(environment))) continue;
    const home = homeOf(environment);
    rmSync(home, { recursive: true, force: true });
    mkdirSync(home, { recursive: true });
    if (isNode(environment)) {
      const flags = ['--silent', '--no-audit', '--no-fund', '--no-save', '--prefix', home];
      install('npm', ['install', ...flags, ...RELEASES[environment]]);
    } else {
      install('python3', ['-m', 'venv', home]);
      const flags = ['install', '-q', '--disable-pip-version-check'];
      install(join(home, 'bin/pip'), [...flags, ...RELEASES[environment]]);
    }
    writeFileSync(markOf(environment), '');
  }
}

function namesOf(): readonly Environment[] {
  return Object.keys(RELEASES) as Environment[];
}

/** Returns the path of the file that marks a finished installation. It names the releases. */
function markOf(environment: Environment): string {
  return join(homeOf(environment), `.has-${RELEASES[environment].join('+').replaceAll(/[^\w.+-]/g, '_')}`);
}

function install(program: string, args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8', timeout: INSTALL_TIMEOUT_MS });
  if (status === 0) return;
  throw new Error(`${program} ${args.join(' ')} ended with ${status}:\n${stdout}${stderr}`);
}
