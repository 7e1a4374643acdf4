import { expect, test } from 'vitest';
import { loadConfig, NO_FLAGS } from './env.ts';
import { settingsInForce } from './in-force.ts';

test.each([
  ['dependencies.pythonIndex', 'https://me:hidden@pypi.example.com/simple', 'https://********@pypi.example.com/simple'],
  ['dependencies.pythonIndex', 'https://me:a@hidden@pypi.example.com/', 'https://********@pypi.example.com/'],
  ['dependencies.pythonIndex', 'https://hidden@pypi.example.com', 'https://********@pypi.example.com'],
  ['dependencies.pythonIndex', 'https://pypi.example.com/@scope?to=me@b', 'https://pypi.example.com/@scope?to=me@b'],
  [
    'jobs.environment',
    'A=https://me:hidden@a/ http://hidden@b/,B=b@c',
    { A: 'https://********@a/ http://********@b/', B: 'b@c' },
  ],
])('names and passwords in URLs are masked: %s=%s', async (name, text, shown) => {
  const settings = settingsInForce(await loadConfig({ ...NO_FLAGS, sets: [`${name}=${text}`] }, {}));
  expect(settings.find(each => each.name === name)).toMatchObject({ value: shown, source: '--set' });
});
