import { homedir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { resolveConfig } from './config.ts';

describe('default data directory', () => {
  const dataDir = async (environment: Record<string, string>, isRoot: boolean): Promise<string> =>
    (await resolveConfig([], { environment, isRoot })).dataDir;

  test('the default data directory is /var/lib/rookery for root', async () => {
    expect(await dataDir({ XDG_DATA_HOME: '/x' }, true)).toBe('/var/lib/rookery');
  });

  test('the default data directory is below XDG_DATA_HOME for other users', async () => {
    expect(await dataDir({ XDG_DATA_HOME: '/x' }, false)).toBe('/x/rookery');
  });

  test.each([{}, { XDG_DATA_HOME: '' }, { XDG_DATA_HOME: 'relative' }])(
    'the default data directory is in the home directory for other users with %j',
    async environment => {
      expect(await dataDir(environment, false)).toBe(join(homedir(), '.local/share/rookery'));
    },
  );
});
