import { expect, test } from 'vitest';
import { LICENCE_FILE, lockedPackages, shippedPackages, thirdPartyNotices } from './notices.ts';

test('LICENCE_FILE matches licence files with any ending', () => {
  for (const name of ['LICENSE', 'LICENSE.md', 'license.txt', 'LICENCE', 'LICENSE-MIT', 'COPYING', 'NOTICE.md']) {
    expect(name).toMatch(LICENCE_FILE);
  }
  for (const name of ['README.md', 'licensed.js', 'index.d.ts']) expect(name).not.toMatch(LICENCE_FILE);
});

test('the notices have a line for each shipped package, and the licence text of compiled-in packages', () => {
  const notices = thirdPartyNotices();
  const packages = lockedPackages();
  for (const path of shippedPackages(packages)) {
    expect(notices).toContain(`\n${path.replace(/^node_modules\//, '')} ${packages[path]?.version} | `);
  }
  for (const name of ['preact', '@preact/signals', 'uplot', '@xterm/xterm', 'musl libc']) {
    expect(notices).toMatch(new RegExp(`\n${name} .*\\(MIT\\)\n\n`));
  }
});
