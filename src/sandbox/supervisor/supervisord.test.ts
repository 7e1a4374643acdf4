import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readAddress } from './supervisord.ts';

function file(content: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-address-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'credentials');
  writeFileSync(path, content);
  return path;
}

test('readAddress accepts a unix socket and a host with or without a port', async () => {
  expect(await readAddress('unix:///run/s.sock', null)).toEqual({
    shown: 'unix:///run/s.sock',
    connection: { socketPath: '/run/s.sock' },
    credentials: null,
  });
  expect(await readAddress('http://127.0.0.1:19001', null)).toMatchObject({
    connection: { host: '127.0.0.1', port: 19001 },
  });
  expect(await readAddress('http://[::1]', null)).toMatchObject({ connection: { host: '::1', port: 9001 } });
});

test('readAddress decodes the credentials of the URL and omits them from the shown address', async () => {
  expect(await readAddress('http://a:b%3Ac@h:1', null)).toEqual({
    shown: 'http://h:1',
    connection: { host: 'h', port: 1 },
    credentials: 'a:b:c',
  });
});

test('readAddress reads one line of credentials from a file, and a password may contain colons', async () => {
  expect(await readAddress('unix:///s', file('me:p:w\r\n'))).toMatchObject({ credentials: 'me:p:w' });
  await expect(readAddress('unix:///s', file('nothing\n'))).rejects.toThrow('expected one line, user:password');
  await expect(readAddress('unix:///s', '/nowhere')).rejects.toThrow('supervisor.credentialsFile cannot be read');
  await expect(readAddress('http://a:b@h', file('a:b'))).rejects.toThrow('expected one of them');
});

test.each(['unix://relative', 'https://h', 'nonsense', 'http://', 'http://a:50%@h'])(
  'readAddress refuses %s and names the expected form',
  async url => {
    await expect(readAddress(url, null)).rejects.toThrow('supervisor.url: expected unix:///path/of/the/socket');
  },
);
