/** `npm run build`: src/ → dist/, which needs nothing but Node and the production dependencies. */
import { chmodSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { bin, ROOT, run } from './command.ts';

const DIST = join(ROOT, 'dist');
const SRC = join(ROOT, 'src');

/**
 * Removes what no source stands behind any more. `dist` is not emptied instead: a server that runs from it imports
 * some of its files late.
 */
function removeStale(): void {
  if (!existsSync(DIST)) return;
  for (const file of readdirSync(DIST, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.js')) continue;
    const source = join(SRC, `${file.slice(0, -'.js'.length)}.ts`);
    if (!existsSync(source)) rmSync(join(DIST, file));
  }
}

const { code } = await run(bin('tsc'), ['-p', 'tsconfig.build.json']);
removeStale();
const main = join(DIST, 'main.js');
if (existsSync(main)) chmodSync(main, 0o755);
process.exitCode = code;
