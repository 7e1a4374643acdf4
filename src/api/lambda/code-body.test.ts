import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { readCodeBody } from './code-body.ts';
import { readCodeUpdate, readCreateRequest } from './requests.ts';

/** Above the size from which bodies are read in slices, and no multiple of 3. */
const ZIP = randomBytes(1_200_001);
const BASE64 = ZIP.toString('base64');

test.each([
  ['an update', JSON.stringify({ ZipFile: BASE64, Publish: true }), { Publish: true }],
  ['an update with spaces', `{"Publish": true,\n"ZipFile" :\t"${BASE64}" }`, { Publish: true }],
])('the zip of %s arrives decoded', async (_, text, rest) => {
  const { ZipFile, ...others } = await readCodeBody(Buffer.from(text));
  expect(ZIP.equals(ZipFile as Buffer)).toBe(true);
  expect(others).toEqual(rest);
});

test('the zip of a new function arrives decoded', async () => {
  const sent = { FunctionName: 'ä', Code: { ZipFile: BASE64 }, Runtime: 'python3.12', Handler: 'app.handler' };
  const { FunctionName, Code } = await readCreateRequest(Buffer.from(JSON.stringify(sent)));
  expect(FunctionName).toBe('ä');
  expect(ZIP.equals(Code.ZipFile as Buffer)).toBe(true);
});

test.each([
  ['escapes', `{"ZipFile": "${BASE64.replaceAll('/', '\\/')}"}`],
  ['the name in another field', JSON.stringify({ RevisionId: '"ZipFile"', ZipFile: BASE64 })],
  ['a second field', `{"ZipFile": "AAAA", "ZipFile": "${BASE64}"}`],
])('a body with %s is read as JSON has it', async (_, text) => {
  const { ZipFile } = await readCodeUpdate(Buffer.from(text));
  expect(ZIP.equals(ZipFile as Buffer)).toBe(true);
});

test.each([
  ['a character that is not Base64', JSON.stringify({ ZipFile: `${BASE64}!AAA` }), 'ZipFile must be a zip in Base64'],
  ['padding inside', JSON.stringify({ ZipFile: `AA==${BASE64}` }), 'ZipFile must be a zip in Base64'],
  ['bytes that are not UTF-8', `{"ZipFile": "${BASE64}", "RevisionId": "\xff"}`, 'the body is not UTF-8'],
  ['no end', `{"ZipFile": "${BASE64}`, 'in JSON'],
])('a large body with %s is refused', async (_, text, message) => {
  await expect(readCodeUpdate(Buffer.from(text, 'latin1'))).rejects.toThrow(message);
});
