import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { verifyIntegrity } from './bundled-node.ts';
import { ROOT } from './command.ts';

test('deploy/node.json pins Node 24 for each architecture that has a Debian package', () => {
  const pinned = JSON.parse(readFileSync(join(ROOT, 'deploy/node.json'), 'utf8'));
  expect(Object.keys(pinned)).toEqual(['x64', 'arm64']);
  for (const [architecture, { name, version, integrity }] of Object.entries<Record<string, string>>(pinned)) {
    expect(name).toBe(`node-linux-${architecture}`);
    expect(version).toMatch(/^24\.\d+\.\d+$/);
    expect(integrity).toMatch(/^sha512-[A-Za-z0-9+/]{86}==$/);
  }
});

test("verifyIntegrity throws when the content's hash differs from the pinned hash", () => {
  const content = Buffer.from('node');
  const integrity = 'sha512-Gk+6zQWEFFtLNDfTkHVGDZUFC5hj9cAkyZ/oyr0jmJYsdcFTLKJbTMnH+JsRDfyXR80ZzWkRkZv3PnvT4dS1bQ==';
  expect(() => verifyIntegrity('node@24', content, integrity)).toThrow('node@24 has the hash sha512-');
});
