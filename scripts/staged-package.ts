/** The tree that every package has (npm, Debian, the image): what runs, its dependencies of this lockfile, and nothing that only a developer reads. */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { OWN_SCHEMA } from '../src/storage/applied-schema.ts';
import { keepLastBuild } from './built-files.ts';
import { ROOT, run } from './command.ts';

interface Manifest extends Record<string, unknown> {
  readonly name: string;
  readonly version: string;
  readonly scripts?: unknown;
}

/** What a package has of the repository, beside its dependencies and `package.json`. */
const CONTENT = [
  'dist',
  'runtimes',
  'openapi',
  'examples',
  'rookery.sample.yaml',
  'README.md',
  'CHANGELOG.md',
  'LICENSE',
];
/** Of ours: tests, what C is compiled from, what an editor or a build left. */
const LEFT_OUT = /^(tests(_\w+)?|native|.*_test\.go|__pycache__|.*\.egg-info|node_modules)$/;
/** Of a dependency: types, maps of sources, documents (licenses stay), and sources of native parts. */
const UNUSED = /(\.d\.[cm]?ts|\.[cm]?ts|\.map|\.md|\.markdown|\.c|\.cc|\.h|\.gyp|\.bare|\.100k)$/i;
/** Native parts of these: the program that they are compiled into comes along. */
const PREBUILT = 'prebuilds';
const PLATFORM = 'linux-';

/** Makes `directory`, with the built product and its dependencies. Builds nothing and asks no registry. */
export async function stagePackage(directory: string): Promise<Manifest> {
  if (!existsSync(join(ROOT, 'dist/main.js'))) throw new Error('dist/main.js is not there: run `npm run build` first');
  mkdirSync(directory, { recursive: true });
  for (const name of CONTENT) {
    cpSync(join(ROOT, name), join(directory, name), {
      recursive: true,
      filter: source => !LEFT_OUT.test(basename(source)),
    });
  }
  keepLastBuild(join(directory, 'dist'));
  const dependencies = await productionDependencies();
  for (const path of dependencies) stageDependency(directory, path);
  const manifest = publishedManifest(dependencies);
  writeJson(join(directory, 'package.json'), manifest);
  return manifest;
}

/** What `npm publish` may show: no scripts, and the dependencies as they are in the package, which therefore asks no registry for any. */
function publishedManifest(dependencies: readonly string[]): Manifest {
  const { devDependencies, scripts, overrides, private: _, files, ...kept } = readJson(join(ROOT, 'package.json'));
  const outermost = dependencies.filter(path => path.lastIndexOf('node_modules/') === 0);
  const versions = outermost.map(path => {
    const { name, version } = readJson(join(ROOT, path, 'package.json'));
    return [name, version] as const;
  });
  return {
    ...kept,
    // `rookery upgrade --check` reads it in the registry: which tables this version has.
    rookery: { schema: OWN_SCHEMA },
    dependencies: Object.fromEntries(versions),
    bundleDependencies: versions.map(([name]) => name),
  } as Manifest;
}

/** Paths below the repository, as `node_modules/a/node_modules/b`. Types are no use at run time. */
async function productionDependencies(): Promise<readonly string[]> {
  const { output } = await run('npm', ['ls', '--omit=dev', '--all', '--parseable'], { capture: true });
  const paths = output
    .split('\n')
    .filter(line => line.startsWith(join(ROOT, 'node_modules/')))
    .map(line => relative(ROOT, line))
    .filter(path => !path.includes('node_modules/@types/'));
  if (paths.length === 0) throw new Error(`npm does not tell what the dependencies are:\n${output}`);
  return [...new Set(paths)].sort();
}

function stageDependency(directory: string, path: string): void {
  const from = join(ROOT, path);
  const to = join(directory, path);
  cpSync(from, to, {
    recursive: true,
    dereference: true,
    filter: source => {
      if (source === from) return true;
      // One inside of another is in the list too, if it is needed.
      if (basename(source) === 'node_modules') return false;
      if (basename(dirname(source)) === PREBUILT) return basename(source).startsWith(PLATFORM);
      return statSync(source).isDirectory() || !UNUSED.test(source);
    },
  });
  // What npm would run at an installation compiles native parts, or prints something.
  const { scripts: _, ...manifest } = readJson(join(to, 'package.json'));
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

/** Of all files below, in bytes. */
export function sizeOf(directory: string): number {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

function readJson(file: string): Manifest {
  return JSON.parse(readFileSync(file, 'utf8')) as Manifest;
}

function writeJson(file: string, value: unknown): void {
  writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`);
}
