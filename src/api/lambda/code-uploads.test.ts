import { describe, expect, test } from 'vitest';
import { codeUrl } from '../../core/code-package.ts';
import { invalidRequest, resourceExhausted, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { CodeUploads } from './code-uploads.ts';

const CODE = { ZipFile: Buffer.from('zip'), S3Bucket: '', ImageUri: '' };
const PATH = codeUrl('0'.repeat(64));

function uploadsWith(put: () => Promise<never>) {
  return new CodeUploads({ packages: { put }, unpacker: {} as never });
}

describe('uploads of code by clients of Lambda', () => {
  test('the path has the SHA-256 of the zip', async () => {
    const path = await uploadsWith(() => Promise.reject()).pathOf(CODE);
    expect(path).toMatch(/^code:\/\/[0-9a-f]{64}$/);
  });

  test('a zip above the limit is refused', async () => {
    const ZipFile = Buffer.alloc(LIMITS.lambdaZipBytes + 1);
    const refused = uploadsWith(() => Promise.reject()).pathOf({ ...CODE, ZipFile });
    await expect(refused).rejects.toMatchObject({ refusal: { status: 413, type: 'RequestTooLargeException' } });
  });

  test.each([
    ['a full disk of the tenant', resourceExhausted('full'), 'CodeStorageExceededException'],
    ['a broken zip', invalidRequest('broken'), 'InvalidParameterValueException'],
  ])('%s is the exception of AWS', async (_, reason, type) => {
    const refused = uploadsWith(() => Promise.reject(reason)).store('t', PATH, CODE);
    await expect(refused).rejects.toMatchObject({ refusal: { status: 400, type } });
  });

  test('a failure of the storage stays a failure of the service', async () => {
    const reason = unavailable('no database');
    await expect(uploadsWith(() => Promise.reject(reason)).store('t', PATH, CODE)).rejects.toBe(reason);
  });

  test('a fifth upload at the same time is refused until one has ended', async () => {
    const started: ((reason: Error) => void)[] = [];
    const uploads = uploadsWith(() => new Promise((_, reject) => started.push(reject)));
    const running = [1, 2, 3, 4].map(() => uploads.store('t', PATH, CODE));
    await expect(uploads.store('t', PATH, CODE)).rejects.toMatchObject({
      refusal: { status: 429, type: 'TooManyRequestsException', retryAfterSeconds: 1 },
    });
    for (const end of started) end(new Error('ended'));
    await Promise.allSettled(running);
    const next = uploads.store('t', PATH, CODE);
    started.at(-1)?.(new Error('ended'));
    await expect(next).rejects.toThrow('ended');
  });
});
