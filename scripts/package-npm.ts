/**
 * Makes the tarball for `npm install -g`: `npm run package:npm [-- DIRECTORY]`. The last line of the output
 * is its path.
 */
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ARGUMENTS, run } from './command.ts';
import { megabytes, sizeOf, stagePackage } from './staged-package.ts';

const out = resolve(ARGUMENTS[0] ?? 'packages');
const staged = mkdtempSync(join(tmpdir(), 'rookery-package-'));
try {
  const { name, version } = await stagePackage(staged);
  mkdirSync(out, { recursive: true });
  const { code, output } = await run('npm', ['pack', '--silent', '--pack-destination', out], {
    cwd: staged,
    capture: true,
  });
  if (code !== 0) throw new Error(output);
  const file = join(out, `${name}-${version}.tgz`);
  console.log(`${megabytes(statSync(file).size)} packed, ${megabytes(sizeOf(staged))} installed`);
  console.log(file);
} finally {
  rmSync(staged, { recursive: true, force: true });
}
