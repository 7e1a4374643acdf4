import { expect, test } from 'vitest';
import { newSecret } from './new-secret.ts';

test('newSecret returns 32 base64url characters and never repeats a secret', () => {
  const secrets = Array.from({ length: 1000 }, newSecret);
  for (const secret of secrets) expect(secret).toMatch(/^[\w-]{32}$/);
  expect(new Set(secrets).size).toBe(secrets.length);
});
