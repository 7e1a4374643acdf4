import { describe, expect, test } from 'vitest';
import { tenantOf } from './tenant.ts';

test('no header: the token’s tenant, else default', () => {
  expect(tenantOf({}, undefined)).toBe('default');
  expect(tenantOf({}, 'acme')).toBe('acme');
});

test.each(['tenantid', 'x-tenant-id'])('the header %s names it', header => {
  expect(tenantOf({ [header]: 'acme' }, undefined)).toBe('acme');
  expect(tenantOf({ [header]: 'acme' }, 'acme')).toBe('acme');
});

test('a header that differs from the token is permission_denied', () => {
  expect(() => tenantOf({ tenantid: 'other' }, 'acme')).toThrow(expect.objectContaining({ code: 'permission_denied' }));
});

test('two headers that differ are invalid', () => {
  expect(() => tenantOf({ tenantid: 'a', 'x-tenant-id': 'b' }, undefined)).toThrow('differ');
});

describe('tenants', () => {
  test.each(['a', 'A.b_c-9', 'x'.repeat(64)])('%s is one', tenant => {
    expect(tenantOf({ tenantid: tenant }, undefined)).toBe(tenant);
  });
  test.each(['', '-a', '.a', '_a', 'a b', 'a/b', 'ä', 'x'.repeat(65), 'a, a', 'a\n'])('%j is none', tenant => {
    expect(() => tenantOf({ tenantid: tenant }, undefined)).toThrow(
      expect.objectContaining({ code: 'invalid_request' }),
    );
  });
});
