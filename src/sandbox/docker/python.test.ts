import { expect, test } from 'vitest';
import type { RuntimeCommand, SandboxSpec } from '../driver.ts';
import { interpreterNames, missingPython, pythonNeed } from './python.ts';

const needOf = (command: RuntimeCommand, env: Record<string, string> = {}) =>
  pythonNeed({ command, env, secret: 's' } as unknown as SandboxSpec);

test.each([
  [{ kind: 'python', version: '3.9' }, 'must', { version: '3.9', mode: 'python' }],
  [{ kind: 'http', argv: ['/a/b'], deployDir: '/a' }, 'must', { version: null, mode: 'http', argv: ['/a/b'] }],
  [{ kind: 'exec', argv: [] }, 'must', { version: null, mode: 'python', argv: [] }],
  [{ kind: 'exec', argv: ['/a/b'], orServesHttp: true }, 'may', { mode: 'program', argv: ['/a/b'] }],
  [{ kind: 'exec', argv: ['/a/b'] }, 'none', null],
  [{ kind: 'image' }, 'none', null],
] as const)('pythonNeed reports the need and the orders for %j', (command, need, orders) => {
  expect(needOf(command)).toMatchObject({ need, orders });
});

test('pythonNeed unsets HOSTNAME unless the spec sets the variable', () => {
  const command = { kind: 'python', version: '3.9' } as const;
  expect(needOf(command).orders?.unset).toEqual(['HOSTNAME']);
  expect(needOf(command, { HOSTNAME: 'mine' }).orders?.unset).toEqual([]);
});

test('interpreterNames lists the exact name first', () => {
  expect(interpreterNames('3.9')).toEqual(['python3.9', 'python3', 'python']);
  expect(interpreterNames(null)).toEqual(['python3', 'python']);
});

const withoutPython = (command: RuntimeCommand, targets: readonly string[], looked: readonly string[]) => {
  const mounts = targets.map(target => ({ source: '/data', target, readonly: true }));
  return missingPython({ command, rootfs: { type: 'image', imageUrl: 'img:1', user: '' }, mounts }, looked);
};

test('missingPython names the image and the interpreters that were tried', () => {
  expect(withoutPython({ kind: 'python', version: '3.9' }, ['/code'], ['python3.9: it does not exist'])).toBe(
    'invalid function: runtime python3.9 is not available: image img:1 has no Python 3.9 (python3.9: it does not exist)',
  );
  expect(withoutPython({ kind: 'http', argv: [], deployDir: '' }, [], [])).toMatch(
    /^invalid function: image img:1 has no Python 3, which what speaks HTTP to its server needs/,
  );
});

test('missingPython names the mounts that may hide the Python of the image', () => {
  const targets = ['/usr/', '/usr/local/bin', '/lib64', '/usr/share', '/library/x', '/code'];
  expect(withoutPython({ kind: 'python', version: '3.9' }, targets, ['python3.9: it does not exist'])).toContain(
    '(python3.9: it does not exist; a mount hides what the image has at /usr/, /usr/local/bin, /lib64)',
  );
});
