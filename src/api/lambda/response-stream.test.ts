import { expect, test } from 'vitest';
import { RESPONSE_STREAM, streamEnd } from './response-stream.ts';

test('a chunk is a message with headers and two checksums', () => {
  const text = (name: string, value: string) => {
    const length = value.length.toString(16).padStart(4, '0');
    return `${name.length.toString(16).padStart(2, '0')}${Buffer.from(name).toString('hex')}07${length}${Buffer.from(value).toString('hex')}`;
  };
  const headers = [
    text(':message-type', 'event'),
    text(':event-type', 'PayloadChunk'),
    text(':content-type', 'application/octet-stream'),
  ].join('');
  const bytes = RESPONSE_STREAM.encode(Buffer.from([0, 255]), true, true) as Buffer;
  expect(bytes.readUInt32BE(0)).toBe(bytes.length);
  expect(bytes.readUInt32BE(4)).toBe(headers.length / 2);
  expect(bytes.subarray(12, -6).toString('hex')).toBe(headers);
  expect([...bytes.subarray(-6, -4)]).toEqual([0, 255]);
});

test('an empty chunk is no message', () => {
  expect(RESPONSE_STREAM.encode(Buffer.alloc(0), true, true)).toBe('');
});

test('the end of a stream names the failure of the function', () => {
  const end = streamEnd({ ErrorCode: 'Unhandled', ErrorDetails: '{"errorType":"Odd"}' }).toString('latin1');
  expect(end).toContain('InvokeComplete');
  expect(end).toContain('{"ErrorCode":"Unhandled","ErrorDetails":"{\\"errorType\\":\\"Odd\\"}"}');
});
