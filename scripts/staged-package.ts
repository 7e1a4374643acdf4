/**
 * Makes the directory tree that every package contains (npm, Debian, the image).
 * It has the program and the dependencies of the lockfile, and no files for developers.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { OWN_SCHEMA } from '../src/storage/applied-schema.ts';
import { keepLastBuild } from './built-files.ts';
import { ROOT, run } from './command.ts';
import { LICENCE_FILE, lockedPackages, shippedPackages } from './notices.ts';

interface NpmManifest extends Record<string, unknown> {
  readonly name: string;
  readonly version: string;
  readonly scripts?: unknown;
  readonly homepage?: string;
}

/** Files of the repository that a package contains, in addition to dependencies and `package.json`. */
const CONTENT = [
  'dist',
  'docs',
  'runtimes',
  'openapi',
  'examples',
  'rookery.sample.yaml',
  'README.md',
  'CHANGELOG.md',
  'LICENSE',
  'THIRD-PARTY-NOTICES',
];
/** Files of deploy/ for an operator, which every package contains. */
const OPERATOR_FILES = ['alerts.yaml', 'compose.yaml', 'grafana-dashboard.json', 'proxy'];
/** Names in the repository to leave out: tests, C sources, and files of editors or builds. */
const LEFT_OUT = /^(tests(_\w+)?|decisions|native|.*_test\.go|__pycache__|.*\.egg-info|node_modules)$/;
/**
 * Names in dependencies to leave out: types, source maps, documents and sources of native parts. Licence
 * files stay.
 */
const UNUSED = /(\.d\.[cm]?ts|\.[cm]?ts|\.map|\.md|\.markdown|\.c|\.cc|\.h|\.gyp|\.bare|\.100k)$/i;
const README = /^readme/i;
/** Directory of a dependency with compiled native parts. Only those of this platform are kept. */
const PREBUILT = 'prebuilds';
const PLATFORM = 'linux-';

/**
 * Writes the built product and its dependencies to `directory`. Builds the product first, unless a test run
 * has built it.
 */
export async function stagePackage(directory: string): Promise<NpmManifest> {
  if (process.env.ROOKERY_TEST_BUILT !== '1' || !existsSync(join(ROOT, 'dist/main.js'))) {
    const { code } = await run('npm', ['run', '--silent', 'build'], { cwd: ROOT });
    if (code !== 0) throw new Error('the product could not be built');
  }
  mkdirSync(directory, { recursive: true });
  for (const name of CONTENT) {
    cpSync(join(ROOT, name), join(directory, name), {
      recursive: true,
      filter: source => !LEFT_OUT.test(basename(source)),
    });
  }
  mkdirSync(join(directory, 'deploy'));
  for (const name of OPERATOR_FILES.filter(name => existsSync(join(ROOT, 'deploy', name)))) {
    cpSync(join(ROOT, 'deploy', name), join(directory, 'deploy', name), { recursive: true });
  }
  keepLastBuild(join(directory, 'dist'));
  const dependencies = shippedPackages(lockedPackages());
  for (const path of dependencies) stageDependency(directory, path);
  const manifest = publishedManifest(dependencies);
  writeJson(join(directory, 'package.json'), manifest);
  return manifest;
}

/**
 * Returns the manifest for publication: without scripts, and with the bundled dependencies in exact versions.
 * Because they are bundled, npm requests none of them from a registry.
 */
function publishedManifest(dependencies: readonly string[]): NpmManifest {
  const {
    devDependencies,
    scripts,
    overrides,
    private: _,
    files,
    '//': __,
    ...kept
  } = readJson(join(ROOT, 'package.json'));
  const outermost = dependencies.filter(path => path.lastIndexOf('node_modules/') === 0);
  const versions = outermost.map(path => {
    const { name, version } = readJson(join(ROOT, path, 'package.json'));
    return [name, version] as const;
  });
  return {
    ...kept,
    // `rookery upgrade --check` reads this field in the registry, to learn the database schema of a version.
    rookery: { schema: OWN_SCHEMA },
    dependencies: Object.fromEntries(versions),
    bundleDependencies: versions.map(([name]) => name),
  } as NpmManifest;
}

function stageDependency(directory: string, path: string): void {
  const from = join(ROOT, path);
  const to = join(directory, path);
  const hasTerms = readdirSync(from).some(name => LICENCE_FILE.test(name));
  cpSync(from, to, {
    recursive: true,
    dereference: true,
    filter: source => {
      if (source === from) return true;
      // The lockfile lists a nested dependency separately if it is needed.
      if (basename(source) === 'node_modules') return false;
      if (basename(dirname(source)) === PREBUILT) return basename(source).startsWith(PLATFORM);
      if (statSync(source).isDirectory() || LICENCE_FILE.test(basename(source))) return true;
      // Without a licence file, README may contain the terms.
      if (!hasTerms && dirname(source) === from && README.test(basename(source))) return true;
      return !UNUSED.test(source);
    },
  });
  // Install scripts would compile native parts or print messages, so they are removed.
  const { scripts: _, optionalDependencies: __, ...manifest } = readJson(join(to, 'package.json'));
  writeJson(join(to, 'package.json'), manifest);
  removeEmpty(to);
}

function removeEmpty(directory: string): boolean {
  let isEmpty = true;
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    if (!entry.isDirectory() || !removeEmpty(join(directory, entry.name))) isEmpty = false;
  }
  if (isEmpty) rmSync(directory, { recursive: true });
  return isEmpty;
}

/** Returns the size of all files below `directory`, in bytes. */
export function sizeOf(directory: string): number {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

function readJson(file: string): NpmManifest {
  return JSON.parse(readFileSync(file, 'utf8')) as NpmManifest;
}

function writeJson(file: string, value: unknown): void {
  writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`);
}
