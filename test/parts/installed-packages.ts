import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { KEPT_DIR } from './kept.ts';

const INSTALL_TIMEOUT_MS = 300_000;
/** The PATH of sandboxes, whose Python may be another one than that of the tests. */
const SANDBOX_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Packages of PyPI and npm that tests use, each set in a directory of its own. The directories are kept
 * between runs, because installing takes longer than the tests.
 */
export class InstalledPackages<Name extends string> {
  readonly #home: string;
  readonly #releases: Readonly<Record<Name, readonly string[]>>;

  /**
   * `directory` is below the kept directory. Sets whose name begins with `node` are of npm.
   * Those that begin with `code-` become a directory that a sandbox runs as code.
   */
  constructor(directory: string, releases: Readonly<Record<Name, readonly string[]>>) {
    this.#home = join(KEPT_DIR, 'rookery-test-tools', directory);
    this.#releases = releases;
  }

  /** Returns the directory of a set: a virtual environment, or one with `node_modules`. */
  homeOf(name: Name): string {
    return join(this.#home, name);
  }

  /** Returns the directory with the packages of a set that sandboxes run. */
  codeOf(name: Name): string {
    return join(this.homeOf(name), 'code');
  }

  /** Returns the path of a program of a package of npm. */
  programOf(name: Name, program: string): string {
    return join(this.homeOf(name), 'node_modules/.bin', program);
  }

  isNode(name: Name): boolean {
    return name.startsWith('node');
  }

  /** Returns why packages of these sets, by default of all, are missing, or null. Installs nothing. */
  whyMissing(names: readonly Name[] = this.#names()): string | null {
    const missing = names.filter(name => !existsSync(this.#markOf(name)));
    return missing.length === 0 ? null : `the packages of ${missing.join(', ')} are not installed`;
  }

  /** Installs what is missing. Throws an error with the installer's output if an installation fails. */
  install(): void {
    for (const name of this.#names()) {
      if (existsSync(this.#markOf(name))) continue;
      const home = this.homeOf(name);
      rmSync(home, { recursive: true, force: true });
      mkdirSync(home, { recursive: true });
      if (this.isNode(name)) {
        const flags = ['--silent', '--no-audit', '--no-fund', '--no-save', '--prefix', home];
        runInstaller('npm', ['install', ...flags, ...this.#releases[name]]);
      } else {
        const isCode = name.startsWith('code-');
        runInstaller('python3', ['-m', 'venv', home], isCode ? { PATH: SANDBOX_PATH } : {});
        const flags = [
          'install',
          '-q',
          '--disable-pip-version-check',
          ...(isCode ? ['--target', this.codeOf(name)] : []),
        ];
        runInstaller(join(home, 'bin/pip'), [...flags, ...this.#releases[name]]);
      }
      writeFileSync(this.#markOf(name), '');
    }
  }

  #names(): readonly Name[] {
    return Object.keys(this.#releases) as Name[];
  }

  /** Returns the path of the file that marks a finished installation. It names the releases. */
  #markOf(name: Name): string {
    return join(this.homeOf(name), `.has-${this.#releases[name].join('+').replaceAll(/[^\w.+-]/g, '_')}`);
  }
}

function runInstaller(
  program: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): void {
  const env = { ...process.env, ...variables };
  const { status, stdout, stderr } = spawnSync(program, args, { env, encoding: 'utf8', timeout: INSTALL_TIMEOUT_MS });
  if (status === 0) return;
  throw new Error(`${program} ${args.join(' ')} ended with ${status}:\n${stdout}${stderr}`);
}
