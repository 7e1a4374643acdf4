import { expect, test } from 'vitest';
import { newSecret } from './new-secret.ts';

test('secrets are 32 characters of base64url, and none comes twice', () => {
  const secrets = Array.from({ length: 1000 }, newSecret);
  for (const secret of secrets) expect(secret).toMatch(/^[\w-]{32}$/);
  expect(new Set(secrets).size).toBe(secrets.length);
});
