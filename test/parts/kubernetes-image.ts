import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../../scripts/command.ts';
import { runDocker } from './docker.ts';
import { KEPT_DIR } from './kept.ts';
import { withMachineLock } from './machine-lock.ts';

const execute = promisify(execFile);

const KEPT = join(KEPT_DIR, 'rookery-test-images');
const PREFIX = 'rookery-product-';
const BASE = join(KEPT, 'rookery-base-2.tar');
const KEEP_MS = 24 * 3_600_000;
export const IMAGE_MAKE_MS = 600_000;
/** Files and directories from which the image is built. */
const CONTENT = [
  'deploy/Dockerfile',
  'deploy/node.json',
  'deploy/serve.sh',
  'scripts/bundled-node.ts',
  'scripts/image.sh',
  'scripts/staged-package.ts',
  'package.json',
  'package-lock.json',
  'src',
  'runtimes/python',
  'examples',
  'openapi',
];

/**
 * Returns the name of the product's image and its tar file. `scripts/image.sh` builds it once for each
 * content; the file is kept between runs.
 */
export async function productImage(dockerHost: string): Promise<{ readonly name: string; readonly file: string }> {
  const hash = contentHash();
  const name = `rookery-test/product:${hash}`;
  const file = join(KEPT, `${PREFIX}${hash}.tar`);
  await withMachineLock('image-product', IMAGE_MAKE_MS, async () => {
    if (existsSync(file)) return;
    await mkdir(KEPT, { recursive: true });
    const environment = { DOCKER_HOST: dockerHost };
    // The base image takes a minute to build and is the same for every content.
    if (existsSync(BASE)) await runDocker(environment, ['load', '--input', BASE]);
    await execute(join(ROOT, 'scripts/image.sh'), [name], {
      env: { ...process.env, ...environment, DOCKER_CONTEXT: '' },
      timeout: IMAGE_MAKE_MS,
      maxBuffer: 64 * 1024 * 1024,
    });
    const bases = await runDocker(environment, ['images', '--format', '{{.Repository}}:{{.Tag}}', 'rookery-base']);
    if (!existsSync(BASE) && bases !== '') await keep(environment, bases.split('\n'), BASE);
    await keep(environment, [name], file);
    // Other worktrees of this machine keep their images here too.
    for (const entry of readdirSync(KEPT).filter(entry => entry.startsWith(PREFIX))) {
      const old = join(KEPT, entry);
      if (Date.now() - lstatSync(old).mtimeMs > KEEP_MS) await rm(old, { force: true });
    }
  });
  return { name, file };
}

async function keep(
  environment: Readonly<Record<string, string>>,
  images: readonly string[],
  file: string,
): Promise<void> {
  await runDocker(environment, ['save', '--output', `${file}.part`, ...images]);
  await rename(`${file}.part`, file);
}

/** Loads an image into the node of a cluster that `up` made in `directory`. */
export async function loadImage(directory: string, file: string): Promise<void> {
  const socket = join(directory, 'containerd/containerd.sock');
  await execute('ctr', ['-a', socket, '-n', 'k8s.io', 'images', 'import', file], { timeout: IMAGE_MAKE_MS });
}

export function isLoadable(directory: string): boolean {
  return existsSync(join(directory, 'containerd/containerd.sock'));
}

function contentHash(): string {
  const hash = createHash('sha256');
  for (const path of CONTENT) {
    for (const file of filesOf(path))
      hash
        .update(`${file}\0`)
        .update(readFileSync(join(ROOT, file)))
        .update('\0');
  }
  return hash.digest('hex').slice(0, 16);
}

/** Returns the files of a path below the root, in a fixed order. */
function filesOf(path: string): readonly string[] {
  const stats = lstatSync(join(ROOT, path), { throwIfNoEntry: false });
  if (stats?.isFile()) return [path];
  if (!stats?.isDirectory() || path.includes('/tests')) return [];
  return readdirSync(join(ROOT, path))
    .filter(name => !/\.test\.ts$|^__pycache__$/.test(name))
    .sort()
    .flatMap(name => filesOf(`${path}/${name}`));
}
