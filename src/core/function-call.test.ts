import { describe, expect, it } from 'vitest';
import { isPlainCall, PLACEMENT_HEADERS, readFunctionCallHeaders, readSessionContext } from './function-call.ts';

const read = (headers: Record<string, string>) => readFunctionCallHeaders(headers);

describe('headers of a function invocation', () => {
  it('a call without placement headers has empty placement values', () => {
    expect(read({})).toEqual({
      cpuMillis: undefined,
      memoryMb: undefined,
      customResources: '',
      poolLabels: [],
      label: '',
      session: undefined,
      sessionContext: undefined,
    });
  });

  it.each(Object.values(PLACEMENT_HEADERS))(
    'a call is not plain when $wireName is sent, even when its value is empty',
    ({ wireName }) => {
      expect(isPlainCall({ [wireName.toLowerCase()]: '' })).toBe(false);
      expect(read({ [wireName.toLowerCase()]: ' ' })).toEqual(read({}));
    },
  );

  it('X-Instance-Cpu and X-Instance-Memory are read as positive integers', () => {
    expect(read({ 'x-instance-cpu': '500', 'x-instance-memory': '256' })).toMatchObject({
      cpuMillis: 500,
      memoryMb: 256,
    });
  });

  it.each(['0', '-1', '1.5', 'x', '1e3', '99999999999'])('X-Instance-Cpu: %s is refused with 200400', value => {
    expect(() => read({ 'x-instance-cpu': value })).toThrow(expect.objectContaining({ number: 200400 }));
  });

  it('a session id in UTF-8 equals the id in the URL of the session, and other bytes stay unchanged', () => {
    const sent = (text: string) => read({ 'x-instance-session': Buffer.from(text).toString('latin1') }).session?.id;
    expect(sent('é€')).toBe('é€');
    expect(sent('{"sessionID":"日本"}')).toBe('日本');
    expect(read({ 'x-instance-session': '\u00e9' }).session?.id).toBe('é');
  });

  it('X-Instance-Custom-Resource is read to the same text when its keys have another order', () => {
    const a = read({ 'x-instance-custom-resource': '{"b":1,"a":2}' }).customResources;
    expect(a).toBe(read({ 'x-instance-custom-resource': '{"a":2,"b":1}' }).customResources);
  });

  it.each(['[]', '{"a":"1"}', '{"a":-1}', '{"a":1e400}', 'x'])(
    'X-Instance-Custom-Resource: %s is refused with 200400',
    value => {
      expect(() => read({ 'x-instance-custom-resource': value })).toThrow(expect.objectContaining({ number: 200400 }));
    },
  );

  it('X-Pool-Label is read as a list from JSON or from text with commas', () => {
    expect(read({ 'x-pool-label': 'a, b' }).poolLabels).toEqual(['a', 'b']);
    expect(read({ 'x-pool-label': '["a","b"]' }).poolLabels).toEqual(['a', 'b']);
  });

  it('X-Instance-Session is read as a bare id, or as JSON with slots and time to live', () => {
    expect(read({ 'x-instance-session': 's1' }).session).toEqual({ id: 's1', concurrency: 1, ttlMs: 0 });
    expect(read({ 'x-instance-session': '{"sessionID":"s1","sessionTTL":5,"concurrency":-1}' }).session).toEqual({
      id: 's1',
      concurrency: -1,
      ttlMs: 5000,
    });
  });

  it.each([
    '{"sessionID":""}',
    '{"sessionTTL":1}',
    '{"sessionID":1}',
    `{"sessionID":"${'x'.repeat(64)}"}`,
    'x'.repeat(64),
    '{"sessionID":"s","sessionTTL":-1}',
    '{"sessionID":"s","sessionTTL":1.5}',
    '{"sessionID":"s","concurrency":0}',
    '{"sessionID":"s","concurrency":-2}',
    '{"sessionID":"s","concurrency":"1"}',
    '{"sessionID":',
  ])('X-Instance-Session: %s is refused with 4037', value => {
    expect(() => read({ 'x-instance-session': value })).toThrow(expect.objectContaining({ number: 4037 }));
  });

  it('X-Session-Context is read as JSON with a sessionCtx of at most 63 characters', () => {
    expect(readSessionContext('{"sessionCtx":"c"}')).toBe('c');
    expect(readSessionContext(undefined)).toBe('');
    for (const value of ['c', '[]', '{}', '{"sessionCtx":1}', `{"sessionCtx":"${'x'.repeat(64)}"}`]) {
      expect(() => readSessionContext(value)).toThrow(expect.objectContaining({ number: 4037 }));
    }
  });
});
