import { createHash } from 'node:crypto';
import { expect, it } from 'vitest';
import { digest, sha256 } from './sha256.ts';

it('the digest is that of Node for every length around the end of a block', async () => {
  for (let length = 0; length < 200; length += 1) {
    const bytes = Uint8Array.from({ length }, (_, index) => (index * 7 + length) & 255);
    const wanted = createHash('sha256').update(bytes).digest('hex');
    expect(Buffer.from(digest(bytes)).toString('hex'), `${length} bytes`).toBe(wanted);
    expect(await sha256(bytes)).toBe(wanted);
  }
});
