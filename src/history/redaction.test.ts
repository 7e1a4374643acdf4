import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { REDACTED, Redaction } from './redaction.ts';

const redaction = new Redaction(['password', 'token', 'secret', 'api_key', 'authorization']);

describe('Redaction', () => {
  test.each([
    'password',
    'Password',
    'db_password',
    'userPassword',
    'userpassword',
    'password1',
    'token',
    'access-token',
    'api_key',
    'apiKey',
    'APIKey',
    'X-Api-Key',
    'openai_api_key',
    'Authorization',
  ])('hides the value of %s', name => {
    expect(redaction.json(JSON.stringify({ [name]: 'v', other: 1 }))).toBe(
      `{${JSON.stringify(name)}:"${REDACTED}","other":1}`,
    );
  });

  test.each(['name', 'max_tokens', 'tokenizer', 'api', 'key', 'keys_api', 'passwords_count'])(
    'shows the value of %s',
    name => {
      const json = JSON.stringify({ [name]: 'v' });
      expect(redaction.json(json)).toBe(json);
    },
  );

  test('hides whole objects, lists, numbers and values behind spaces', () => {
    const json = '{ "token" : {"a":["}",{"b":"\\"]"}]} , "x":1,"secret":[1,[2]],"password":12,"api_key":null}';
    expect(redaction.json(json)).toBe(
      `{ "token" : "${REDACTED}" , "x":1,"secret":"${REDACTED}","password":"${REDACTED}","api_key":"${REDACTED}"}`,
    );
  });

  test('hides a field whose name is written with escapes', () => {
    expect(redaction.json('{"pass\\u0077ord":"v"}')).toBe(`{"pass\\u0077ord":"${REDACTED}"}`);
  });

  test('shows a string value that has the name of a hidden field', () => {
    const json = '{"kind":"password","list":["token","secret"]}';
    expect(redaction.json(json)).toBe(json);
  });

  test('never shows a part of a hidden value, wherever the text ends', () => {
    const values = fc.oneof(
      fc.string({ minLength: 1 }).map(text => JSON.stringify(`S3CR3T${text}S3CR3T`)),
      fc.string().map(text => JSON.stringify({ a: [`S3CR3T${text}`], b: { c: 'S3CR3T' } })),
      fc.constant('["S3CR3T",{"x":"S3CR3T]"}]'),
    );
    fc.assert(
      fc.property(values, fc.string(), fc.nat(200), (value, other, end) => {
        const json = `{"other":${JSON.stringify(other)},"password":${value},"last":1}`;
        const shown = redaction.json(json.slice(0, end));
        expect(shown).not.toContain('S3C');
        expect(redaction.json(json)).toContain('"last":1}');
      }),
    );
  });

  test.each([
    ['failed: password=hunter2 for x', `failed: password=${REDACTED} for x`],
    ["KeyError: {'api_key': 'abc def'}", `KeyError: {'api_key': ${REDACTED}}`],
    ['Authorization: Bearer abc.def', `Authorization: ${REDACTED}`],
    ['nothing to hide', 'nothing to hide'],
  ])('hides assigned values in the text %j', (text, shown) => {
    expect(redaction.text(text)).toBe(shown);
  });

  test('hides nothing without names', () => {
    expect(new Redaction([]).json('{"password":"a"}')).toBe('{"password":"a"}');
    expect(new Redaction([]).text('password=a')).toBe('password=a');
  });
});
