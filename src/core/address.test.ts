import { describe, expect, test } from 'vitest';
import { addressLabel, addressPath, addressProblem, parseAddressLabel, parseAddressPath } from './address.ts';

const of = (name: string, namespace = 'default', tenant = 'default') => ({ name, namespace, tenant });

describe('the label of an address', () => {
  test.each([
    [of('hello'), 'hello--default'],
    [of('a-b', 'c-d'), 'a-b--c-d'],
    [of('hello', 'demo', 'acme'), 'hello--demo--acme'],
    [of('1', '2', '3'), '1--2--3'],
  ])('addressLabel and parseAddressLabel are inverse for %o', (it, label) => {
    expect(addressLabel(it)).toBe(label);
    expect(parseAddressLabel(label)).toEqual(it);
  });

  test.each([
    '',
    '-',
    '--',
    'a',
    'a--',
    '--b',
    'a---b',
    'a--b--',
    'a--b--c--d',
    'a--b--default',
    'A--b',
    'a_b--c',
    'xn--c',
    'a--b.c',
  ])('parseAddressLabel returns null for "%s"', label => expect(parseAddressLabel(label)).toBeNull());

  test('two agents never have the same address label', () => {
    const parts = ['a', 'b', 'a-b', 'a--b', '-a', 'a-', 'default', 'A', 'xn', ''];
    const seen = new Map<string, string>();
    for (const tenant of parts) {
      for (const namespace of parts) {
        for (const name of parts) {
          const label = addressLabel({ tenant, namespace, name });
          if (label === null) continue;
          expect(seen.get(label)).toBeUndefined();
          seen.set(label, `${tenant}/${namespace}/${name}`);
          expect(parseAddressLabel(label)).toEqual({ tenant, namespace, name });
        }
      }
    }
    expect(seen.size).toBeGreaterThan(20);
  });

  test('addressLabel returns null when the tenant cannot be part of a label', () => {
    for (const tenant of ['Acme', 'a.b', 'a_b', 'a--b', 'x'.repeat(60)])
      expect(addressLabel(of('hello', 'demo', tenant))).toBeNull();
  });
});

describe('a name without an address', () => {
  test.each([
    [of('Hello'), 'its name must have lower-case letters, digits and single "-" in between, got "Hello"'],
    [of('a--b'), 'its name must have lower-case letters, digits and single "-" in between, got "a--b"'],
    [of('-a'), 'its name must have lower-case letters, digits and single "-" in between, got "-a"'],
    [of('a', 'b.c'), 'its namespace must have lower-case letters, digits and single "-" in between, got "b.c"'],
    [of('хello'), 'its name must have lower-case letters, digits and single "-" in between, got "хello"'],
    [of('xn'), 'its name must not be "xn"'],
    [of('a'.repeat(60)), `"${'a'.repeat(60)}--default" must have at most 63 characters, and has 69`],
  ])('addressProblem names the reason why %o can have no address', (it, why) => expect(addressProblem(it)).toBe(why));
});

describe('the path of an address', () => {
  test.each([
    [of('hello'), '/default/hello/', 'hello'],
    [of('hello', 'demo', 'Acme.1'), '/Acme.1/hello--demo/', 'hello--demo'],
  ])('addressPath and parseAddressPath are inverse for %o', (it, path, segment) => {
    expect(addressPath(it)).toBe(path);
    expect(parseAddressPath(it.tenant, segment)).toEqual(it);
  });

  test.each(['', 'Hello', 'a--b--c', 'hello--default', 'a.b', 'a--', 'xn'])(
    'parseAddressPath returns null for "%s"',
    segment => expect(parseAddressPath('default', segment)).toBeNull(),
  );
});
