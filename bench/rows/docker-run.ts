import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from '../../scripts/command.ts';
import type { Bed } from '../bed.ts';

const AGENT_CODE = fileURLToPath(new URL('../agent', import.meta.url));
const IMAGE = 'rookery-bench:latest';
const PROGRAM =
  "import sys, json; sys.path.insert(0, '/code'); import handler; print(json.dumps(handler.handle({'name': 'Ada'}, None)))";
const ASK_LIBRARY = 'import sysconfig; print(sysconfig.get_paths()["stdlib"])';

/**
 * Measures `docker run` of the bench's handler, from the command to its result, in milliseconds.
 * Returns null when no Docker daemon answers. The image contains this host's Python, so nothing is
 * downloaded. The image is removed afterwards.
 */
export async function dockerRunMs(bed: Bed): Promise<readonly number[] | null> {
  const version = await run('docker', ['version', '--format', '{{.Server.Version}}'], { capture: true });
  if (version.code !== 0) return null;
  await makeImage(bed.python.path);
  try {
    const times: number[] = [];
    for (let done = -1; done < (bed.isQuick ? 3 : 10); done += 1) {
      const startedAt = performance.now();
      const { code, output } = await run(
        'docker',
        ['run', '--rm', '-v', `${AGENT_CODE}:/code:ro`, IMAGE, bed.python.path, '-c', PROGRAM],
        { capture: true },
      );
      if (code !== 0) throw new Error(`docker run failed:\n${output}`);
      if (done >= 0) times.push(performance.now() - startedAt);
    }
    return times;
  } finally {
    await run('docker', ['rmi', '-f', IMAGE], { capture: true });
  }
}

/**
 * Makes an image of the interpreter, its linked libraries and its standard library, at the paths of this
 * host.
 */
async function makeImage(python: string): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'rookery-image-'));
  try {
    const linked = await run('ldd', [python], { capture: true });
    const library = (await run(python, ['-c', ASK_LIBRARY], { capture: true })).output.trim();
    const files = [python, ...[...linked.output.matchAll(/(\/\S+) \(0x/g)].map(match => match[1] ?? '')];
    for (const file of files) {
      mkdirSync(join(root, dirname(file)), { recursive: true });
      cpSync(file, join(root, file), { dereference: true });
    }
    cpSync(library, join(root, library), {
      recursive: true,
      filter: source => !/\/(?:site-packages|dist-packages|test|__pycache__|idlelib|config-[^/]*)$/.test(source),
    });
    await importImage(root);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function importImage(root: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const tar = spawn('tar', ['-C', root, '-c', '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const load = spawn('docker', ['import', '-', IMAGE], { stdio: [tar.stdout, 'ignore', 'inherit'] });
    load.once('error', reject);
    load.once('close', code => (code === 0 ? resolve() : reject(new Error(`docker import ended with ${code}`))));
  });
}
