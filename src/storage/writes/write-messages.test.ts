import { expect, test } from 'vitest';
import { alreadyExists, internal, ServiceError } from '../../core/error.ts';
import { receiveError, sendError } from './write-messages.ts';

const passed = (error: unknown) => receiveError(structuredClone(sendError(error)));

test('a ServiceError passes between threads with its code and all response fields', () => {
  const error = alreadyExists('it is there', { number: 4101, retryAfterSeconds: 2, body: { id: 'a' } });
  const received = passed(error);
  expect(received).toBeInstanceOf(ServiceError);
  expect(received).toMatchObject({
    ...{ code: 'already_exists', message: 'it is there', number: 4101, retryAfterSeconds: 2, body: { id: 'a' } },
  });
});

test('a cause passes between threads as its message and stack, without other properties', () => {
  const cause = Object.assign(new Error('EIO'), { handle: () => undefined });
  const received = passed(internal('the disk', { cause }));
  expect(received.cause).toMatchObject({ message: 'EIO', stack: cause.stack });
});

test.each([[new TypeError('no such column')], ['no such column']])('receiveError keeps a foreign error: %s', error => {
  const received = passed(error);
  expect(received).not.toBeInstanceOf(ServiceError);
  expect(received.message).toBe('no such column');
});
