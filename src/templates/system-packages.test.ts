import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { missingOnHost, systemPackagesOf } from './system-packages.ts';

test.each([
  ['apt-get update && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y curl g++', 'curl g++'],
  ['sudo apt-get install --no-install-recommends -y git', 'git'],
  ['apt update\napt install -y git;\napt-get clean && rm -rf /var/lib/apt/lists/*', 'git'],
  ['apt-get update', ''],
  ['apt-get install -y git && git clone x', ''],
  ['apt-get install -y git=1:2.0', ''],
  ['apt-get install -y -t testing git', ''],
  ['apt-get install -y $PACKAGES', ''],
  ['apt-get upgrade -y', ''],
  ['pip install six', ''],
])('the packages of the system in "%s" are "%s"', (script, packages) => {
  expect(systemPackagesOf(script).join(' ')).toBe(packages);
});

test('names the packages that the host lacks', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-packages-'));
  try {
    const file = join(directory, 'status');
    const entries = [
      'Package: curl\nStatus: install ok installed\nVersion: 1',
      'Package: gone\nStatus: deinstall ok config-files',
      'Package: gawk\nStatus: install ok installed\nProvides: awk, other (= 1)',
    ];
    writeFileSync(file, `${entries.join('\n\n')}\n`);
    expect(await missingOnHost(['curl', 'gone', 'awk', 'other', 'git'], file)).toEqual(['gone', 'git']);
    expect(await missingOnHost(['curl'], join(directory, 'absent'))).toEqual(['curl']);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
