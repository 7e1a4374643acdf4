import { expect, test } from 'vitest';
import { AnswerReader } from './answer-reader.ts';

const MAX_HEAD_BYTES = 300;

/** Returns the calls that a sink receives for one answer that arrives in pieces of `pieceBytes` bytes. */
function heard(text: string, pieceBytes: number, { isHead = false, isClosed = false } = {}) {
  const reader = new AnswerReader(MAX_HEAD_BYTES);
  const events: unknown[] = [];
  let body = '';
  reader.begin(
    {
      head: ({ status, reason, headers }) => void events.push([status, reason, headers]),
      data: chunk => {
        body += chunk.toString('latin1');
      },
      end: trailers => void events.push(['end', body, trailers]),
      broke: error => void events.push(error.message),
    },
    isHead,
  );
  const bytes = Buffer.from(text, 'latin1');
  for (let at = 0; at < bytes.length && reader.isReading; at += pieceBytes) {
    reader.read(bytes.subarray(at, at + pieceBytes), isReusable => void events.push(isReusable ? 'free' : 'used up'));
  }
  if (isClosed) events.push(reader.ended());
  return events;
}

const CHUNKED = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

const ANSWERS: readonly (readonly [string, string, readonly unknown[]])[] = [
  [
    'a length',
    'HTTP/1.1 200 OK\r\nX-A:  one \t\r\nx-a: h\xe4\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello',
    [[200, 'OK', ['X-A', 'one', 'x-a', 'h\xe4', 'Content-Length', '5']], 'free', ['end', 'hello', []]],
  ],
  [
    'no body',
    'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n',
    [[200, 'OK', ['Content-Length', '0']], 'free', ['end', '', []]],
  ],
  ['204', 'HTTP/1.1 204 \r\n\r\n', [[204, '', []], 'free', ['end', '', []]]],
  [
    '304 with a length',
    'HTTP/1.1 304\r\nContent-Length: 9\r\n\r\n',
    [[304, '', ['Content-Length', '9']], 'free', ['end', '', []]],
  ],
  [
    'chunks',
    `${CHUNKED}3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n`,
    [[200, 'OK', []], 'free', ['end', 'abc0123456789', []]],
  ],
  [
    'chunks with trailers',
    `${CHUNKED}1\r\na\r\n0\r\nX-Sum: 1\r\nX-B: \r\n\r\n`,
    [[200, 'OK', []], 'free', ['end', 'a', ['X-Sum', '1', 'X-B', '']]],
  ],
  [
    'interim answers before the answer',
    'HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!',
    [[200, 'OK', ['Content-Length', '1']], 'free', ['end', '!', []]],
  ],
  [
    'the end of the connection after the answer',
    'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n!',
    [[200, 'OK', ['Content-Length', '1']], 'used up', ['end', '!', []]],
  ],
];

test.each(ANSWERS)('an answer is read the same in pieces of any size: %s', (_, text, expected) => {
  for (const bytes of [1, 2, 3, 7, 64, 10_000]) expect(heard(text, bytes)).toEqual(expected);
});

test('an answer to HEAD has no body even when its head announces one', () => {
  const head = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n';
  expect(heard(head, 1, { isHead: true })).toEqual([[200, 'OK', ['Content-Length', '5']], 'free', ['end', '', []]]);
  expect(heard(CHUNKED, 1, { isHead: true }).at(-1)).toEqual(['end', '', []]);
});

test('an answer without a length ends with its connection, and any other answer is incomplete then', () => {
  const open = 'HTTP/1.1 200 OK\r\n\r\nall that comes';
  expect(heard(open, 5, { isClosed: true })).toEqual([[200, 'OK', []], ['end', 'all that comes', []], true]);
  expect(heard('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf', 5, { isClosed: true }).at(-1)).toBe(false);
  expect(heard(`${CHUNKED}3\r\nabc\r\n`, 5, { isClosed: true }).at(-1)).toBe(false);
  expect(heard('HTTP/1.1 200', 5, { isClosed: true }).at(-1)).toBe(false);
});

test('unexpected bytes after an answer make the connection unusable', () => {
  const answer = 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!';
  expect(heard(`${answer}HTTP/1.1 200 OK\r\n\r\n`, 10_000)).toContain('used up');
});

test.each([
  ['another protocol', 'SSH-2.0\r\n\r\n'],
  ['another version', 'HTTP/1.0 200 OK\r\n\r\n'],
  ['an invalid status', 'HTTP/1.1 099 No\r\n\r\n'],
  ['a change of protocol', 'HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n'],
  ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n!'],
  ['a length with a sign', 'HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n!'],
  ['a length and chunks', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n!'],
  ['an unknown encoding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n'],
  ['a folded header', 'HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\n\r\n'],
  ['a header without a name', 'HTTP/1.1 200 OK\r\n: 1\r\n\r\n'],
  ['a name with a blank', 'HTTP/1.1 200 OK\r\nX A: 1\r\n\r\n'],
  ['a null', 'HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n'],
  ['a bare line feed', 'HTTP/1.1 200 OK\r\nX-A: a\nX-B: b\r\n\r\n'],
  ['a head that is too long', `HTTP/1.1 200 OK\r\nX-A: ${'a'.repeat(MAX_HEAD_BYTES)}\r\n\r\n`],
  ['a head that never ends', `HTTP/1.1 200 OK\r\nX-A: ${'a'.repeat(2 * MAX_HEAD_BYTES)}`],
  ['a chunk without a size', `${CHUNKED}x\r\n`],
  ['a chunk longer than its size', `${CHUNKED}1\r\nab\r\n`],
  ['a size that never ends', `${CHUNKED}1${' '.repeat(2000)}`],
  ['trailers that never end', `${CHUNKED}0\r\nX-A: ${'a'.repeat(2 * MAX_HEAD_BYTES)}`],
])('the reader refuses an invalid answer: %s', (_, text) => {
  for (const bytes of [1, 10_000]) expect(() => heard(text, bytes)).toThrow('not valid HTTP');
});
