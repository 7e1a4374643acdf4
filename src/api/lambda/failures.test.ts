import { expect, test } from 'vitest';
import { SERVICE_CODES, USER_CODES } from '../../core/codes.ts';
import { deadlineExceeded, resourceExhausted, unavailable } from '../../core/error.ts';
import { functionError, instanceError, refusalOf } from './failures.ts';

test.each([
  ['Fail to run user call handler. err: ValueError: boom.', 'ValueError', 'boom'],
  ['Fail to run user call handler. err: app.Odd: a: b\nc..', 'app.Odd', 'a: b\nc.'],
  ['Fail to run user call handler. err: KeyError.', 'KeyError', ''],
  ['Fail to run user call handler. err: no class here.', 'Error', 'no class here'],
])('the failure "%s" has the type %s', (text, errorType, errorMessage) => {
  expect(functionError(USER_CODES.handlerFailed.code, text)).toEqual({ errorType, errorMessage });
});

test.each(['', '; it printed last: {"a": 1} | x}'])('an error object in the last line counts, before "%s"', end => {
  const error = { errorMessage: 'a: }b', errorType: 'Odd', stackTrace: ['x'] };
  const text = `Fail to run user call handler. err: Odd: a: }b.\n${JSON.stringify(error)}${end}`;
  expect(functionError(USER_CODES.handlerFailed.code, text)).toEqual(error);
});

test('a failure outside of the handler has the type that Lambda gives it', () => {
  expect(functionError(USER_CODES.loadFailed.code, 'no module named app')).toEqual({
    errorType: 'Runtime.ImportModuleError',
    errorMessage: 'no module named app',
  });
  expect(instanceError(deadlineExceeded('timed out after 3 s'))).toMatchObject({ errorType: 'Sandbox.Timedout' });
  expect(instanceError(unavailable('instance exited: exit code 3'))).toMatchObject({ errorType: 'Runtime.ExitError' });
});

test('only a call that has not run is refused, so that a client may repeat it', () => {
  const waited = unavailable('no instance was free within 3 s', { number: SERVICE_CODES.waitedTooLong.code });
  expect(refusalOf(waited)).toMatchObject({ status: 429, type: 'TooManyRequestsException' });
  expect(refusalOf(resourceExhausted('the queue is full', { retryAfterSeconds: 2 }))).toMatchObject({
    status: 429,
    retryAfterSeconds: 2,
  });
  expect(refusalOf(unavailable('instance exited: exit code 3'))).toBeNull();
  expect(refusalOf(new TypeError('no'))).toBeNull();
});
