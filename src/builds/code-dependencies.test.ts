import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CodeDependencies, type CodeDependenciesOptions } from './code-dependencies.ts';

const CODE = '/opt/function/code';
let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-code-dependencies-'));
  for (const name of ['package/real', 'other']) mkdirSync(join(directory, name), { recursive: true });
  // A build that reads one of these files names the content in its error.
  writeFileSync(join(directory, 'other/requirements.txt'), './of-somebody-else\n');
  writeFileSync(join(directory, 'package/real/requirements.txt'), './of-the-package\n');
});
afterEach(() => {
  rmSync(directory, { recursive: true });
});

/** Returns the error text of a build of code that a package or a mount provides from `source`. */
async function build(
  codePath: string,
  kind: 'package' | 'mount',
  source = join(directory, 'package'),
): Promise<string> {
  const dependencies = new CodeDependencies({
    dataDir: join(directory, 'data'),
    policy: { closed: [], allow: null },
    packages: { place: async () => source, release: async () => undefined },
    log: { warn: () => undefined },
  } as unknown as CodeDependenciesOptions);
  const mount = { source: kind === 'package' ? `code://${'a'.repeat(64)}` : source, target: CODE, readonly: true };
  return await dependencies
    .build({
      tenant: 't',
      runtime: 'python3.11',
      codePath,
      dependencies: 'auto',
      sandboxType: 'process',
      mounts: [mount],
    } as Parameters<CodeDependencies['build']>[0])
    .then(String, (error: Error) => error.message);
}

describe.each(['package', 'mount'] as const)('the code path of a %s', kind => {
  test('a build reads a code path through links that stay in its mount', async () => {
    symlinkSync('real', join(directory, 'package/link'));
    symlinkSync('package', join(directory, 'source'));
    for (const path of [`${CODE}/real`, `${CODE}/link/`]) {
      expect(await build(path, kind)).toContain('"./of-the-package" is a path');
      expect(await build(path, kind, join(directory, 'source'))).toContain('"./of-the-package" is a path');
    }
  });

  test.each(['../other', '..', 'real/../../other'])(
    'a code path with a link that leads out to %s is refused',
    async to => {
      symlinkSync(to, join(directory, 'package/x'));
      writeFileSync(join(directory, 'requirements.txt'), './of-somebody-else\n');
      const before = readdirSync('/proc/self/fd').length;
      expect(await build(`${CODE}/x`, kind)).toBe(
        `the code path leads out of its mount through a link: ${CODE}/x; expected a directory below ${CODE}`,
      );
      expect(readdirSync('/proc/self/fd').length).toBe(before);
    },
  );

  test('a code path that leads to a neighbour with the same first letters is refused', async () => {
    mkdirSync(join(directory, 'package-of-another'));
    symlinkSync('../package-of-another', join(directory, 'package/x'));
    expect(await build(`${CODE}/x`, kind)).toContain('leads out of its mount');
  });
});
