import { describe, expect, test } from 'vitest';
import { tenantOf } from './gate.ts';

test('tenantOf returns the token’s tenant, or default, when no header names a tenant', () => {
  expect(tenantOf({}, undefined)).toBe('default');
  expect(tenantOf({}, 'acme')).toBe('acme');
});

test.each(['tenantid', 'x-tenant-id'])('tenantOf reads the tenant from the header %s', header => {
  expect(tenantOf({ [header]: 'acme' }, undefined)).toBe('acme');
  expect(tenantOf({ [header]: 'acme' }, 'acme')).toBe('acme');
});

test('tenantOf fails with permission_denied when the header differs from the token', () => {
  expect(() => tenantOf({ tenantid: 'other' }, 'acme')).toThrow(expect.objectContaining({ code: 'permission_denied' }));
});

test('tenantOf fails when two tenant headers differ', () => {
  expect(() => tenantOf({ tenantid: 'a', 'x-tenant-id': 'b' }, undefined)).toThrow('differ');
});

describe('tenantOf', () => {
  test.each(['a', 'A.b_c-9', 'x'.repeat(64)])('tenantOf accepts tenant %s', tenant => {
    expect(tenantOf({ tenantid: tenant }, undefined)).toBe(tenant);
  });
  test.each(['', '-a', '.a', '_a', 'a b', 'a/b', 'ä', 'x'.repeat(65), 'a, a', 'a\n'])(
    'tenantOf rejects tenant %j',
    tenant => {
      expect(() => tenantOf({ tenantid: tenant }, undefined)).toThrow(
        expect.objectContaining({ code: 'invalid_request' }),
      );
    },
  );
});
