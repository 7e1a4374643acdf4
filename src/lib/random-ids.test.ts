import { expect, test } from 'vitest';
import { newRequestId, newSecret } from './random-ids.ts';

test('newRequestId returns a new UUID of version 4 at each call', () => {
  const ids = Array.from({ length: 1000 }, newRequestId);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(new Set(ids).size).toBe(1000);
});

test('newSecret returns 32 base64url characters and never repeats a secret', () => {
  const secrets = Array.from({ length: 1000 }, newSecret);
  for (const secret of secrets) expect(secret).toMatch(/^[\w-]{32}$/);
  expect(new Set(secrets).size).toBe(secrets.length);
});
