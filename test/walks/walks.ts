/**
 * `npm run walks [-- a b-service b-user c d] [--keep DIRECTORY]` runs the commands of README.md up to the
 * first answer, in five walks on clean machines. The walks are: a fresh clone (a), the Debian package as a
 * service of systemd (b-service) and for an ordinary user (b-user), the image (c), the npm package (d).
 * Each line is printed with the seconds since the start of its walk. A table follows at the end.
 * Requires root, debootstrap and slirp4netns, and Docker for the image. `--keep` writes the lines of each
 * walk to a file in that directory.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { ARGUMENTS } from '../../scripts/command.ts';

const { values, positionals } = parseArgs({
  args: [...ARGUMENTS],
  allowPositionals: true,
  options: { keep: { type: 'string' } },
});
const keep = values.keep === undefined ? null : resolve(values.keep);
if (keep !== null) mkdirSync(keep, { recursive: true });

// Residue in the temporary directory is reported, like in `npm test`. Root file systems and images are kept
// between walks.
process.env.ROOKERY_TEST_KEPT_DIR ??= tmpdir();
const scratch = mkdtempSync(join(tmpdir(), 'rookery-walks-'));
process.env.TMPDIR = scratch;
try {
  const { walkAll } = await import('./strangers.ts');
  // The compiler of the scripts, tsx, keeps its cache from run to run.
  const listLeft = () => readdirSync(scratch).filter(name => !name.startsWith('tsx-'));
  process.exitCode = await walkAll(positionals, keep, listLeft);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
