import { expect, test } from 'vitest';
import { VERSION, VERSIONED_FILES, withVersion } from './versions.ts';

test('every file with a version has the version of package.json', async () => {
  for (const { file, make } of VERSIONED_FILES) expect(await make(), file).toContain(VERSION);
});

test('withVersion replaces every match, pre-releases too, and fails when nothing matches', () => {
  const chart = 'name: rookery\nversion: 0.1.0\nappVersion: 0.1.0-rc.1\n';
  expect(withVersion(chart, /^(?:appV|v)ersion: /gm, 'Chart.yaml', '2.0.0')).toBe(
    'name: rookery\nversion: 2.0.0\nappVersion: 2.0.0\n',
  );
  expect(() => withVersion('nothing', /^version: /gm, 'Chart.yaml', '2.0.0')).toThrow('Chart.yaml has no version');
});
