import { describe, expect, test } from 'vitest';
import { readAgentCreate } from './agent.ts';
import { parseCodeUrl, splitMounts } from './code-package.ts';
import { readRegister } from './function.ts';

const SHA = 'ab'.repeat(32);
const URL = `code://${SHA}`;
const DEFAULTS = { defaultSandboxType: 'process' } as const;

describe('URL of a code package', () => {
  test.each([
    ['', null],
    ['code://', null],
    [`code://${SHA.toUpperCase()}`, null],
    [`${URL}/x`, null],
    [`code://${SHA.slice(1)}`, null],
    [`/${URL}`, null],
    [URL, SHA],
  ])('parseCodeUrl reads %j as %j', (text, sha256) => expect(parseCodeUrl(text)).toBe(sha256));

  test('splitMounts separates packages from host paths, and returns the same list when no package is mounted', () => {
    const [mount, host] = [URL, '/srv'].map(source => ({ source, target: '/t', readonly: true }));
    expect(splitMounts([mount, host] as never)).toEqual({ packages: [mount], others: [host] });
    const others = [host] as never;
    expect(splitMounts(others).others).toBe(others);
  });
});

describe("code package as the source of an agent's mount", () => {
  const create = (source: string) =>
    readAgentCreate(
      {
        ...{ namespace: 'n', name: 'a', mounts: [{ source, target: '/code', readonly: false }] },
        runtime_spec: { runtime: 'python3.11', rootfs: { imageurl: 'host' } },
      },
      't',
      DEFAULTS,
    );
  test('a package mount is read-only when the request asks for a writable one', () => {
    expect(create(URL).mounts).toEqual([{ source: URL, target: '/code', readonly: true }]);
  });
  test('a malformed code:// source is refused', () => {
    expect(() => create('code://abc')).toThrow(
      'mount source must be an absolute path, or code:// and the 64 lower-case hexadecimal digits',
    );
  });
});

describe('code package as the code of a function', () => {
  const base = { name: '0@demo@hello', kind: 'faas', runtime: 'python3.11', cpu: 500, memory: 512, handler: 'a.b' };
  const register = (more: object) => readRegister({ ...base, ...more });
  test('storageType package requires a code:// URL as codePath', () => {
    expect(register({ storageType: 'package', codePath: URL })).toMatchObject({ ok: true, value: { codePath: URL } });
    for (const codePath of ['/srv/code', '', 'code://abc']) {
      expect(register({ storageType: 'package', codePath })).toMatchObject({
        ok: false,
        problems: [expect.stringMatching(/^codePath must be code:\/\/ and .* for storageType package, got /)],
      });
    }
  });
  test('an unknown storageType is refused with the text of releases before code packages', () => {
    expect(register({ storageType: 'git', codePath: URL })).toMatchObject({
      ok: false,
      problems: expect.arrayContaining(['storageType must be one of "local", "s3", "copy", got "git"']),
    });
  });
  test('a mount of a function is refused when its source is a code:// URL', () => {
    const mounts = [{ source: URL, target: '/code' }];
    const read = register({ storageType: 'local', codePath: '/srv', rootfs: { mounts } });
    expect(read).toMatchObject({
      ok: false,
      problems: [expect.stringContaining(`mount source must be an absolute path: ${URL}`)],
    });
  });
});
