import { describe, expect, test } from 'vitest';
import { createHostRule } from './host-rule.ts';

const loopback = createHostRule({ boundHost: '127.0.0.1', allowedHosts: [] });
const open = createHostRule({ boundHost: '0.0.0.0', allowedHosts: ['Rookery.Example.com', 'inner:8080'] });

describe('Host', () => {
  test.each(['localhost', 'LOCALHOST:8888', '127.0.0.1:8888', '127.0.0.1', '127.8.8.8', '[::1]', '[::1]:8888'])(
    'the loopback name %s is allowed',
    host => expect(loopback.allowsHost(host, '127.0.0.1')).toBe(true),
  );

  test.each([
    undefined,
    '',
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'evil.example:8888',
    '10.0.0.1',
    '[::2]',
    '[',
    'localhost, evil.example',
  ])('%s is not', host => expect(loopback.allowsHost(host, '127.0.0.1')).toBe(false));

  test('the bound address is allowed', () => {
    const rule = createHostRule({ boundHost: '10.1.2.3', allowedHosts: [] });
    expect(rule.allowsHost('10.1.2.3:8888', '10.1.2.3')).toBe(true);
    expect(rule.allowsHost('10.1.2.4:8888', '10.1.2.3')).toBe(false);
  });

  test('bound to every address, the one that the connection arrived at is allowed', () => {
    expect(open.allowsHost('10.1.2.3:8888', '10.1.2.3')).toBe(true);
    expect(open.allowsHost('10.1.2.3:8888', '::ffff:10.1.2.3')).toBe(true);
    expect(open.allowsHost('10.1.2.4:8888', '10.1.2.3')).toBe(false);
    expect(loopback.allowsHost('10.1.2.3', '10.1.2.3')).toBe(false);
  });

  test('names of allowedHosts are allowed, with any port unless they name one', () => {
    expect(open.allowsHost('rookery.example.com', '10.0.0.1')).toBe(true);
    expect(open.allowsHost('ROOKERY.example.com:443', '10.0.0.1')).toBe(true);
    expect(open.allowsHost('sub.rookery.example.com', '10.0.0.1')).toBe(false);
    expect(open.allowsHost('inner:8080', '10.0.0.1')).toBe(true);
    expect(open.allowsHost('inner:8081', '10.0.0.1')).toBe(false);
  });
});

describe('Origin', () => {
  const isCrossSite = (host: string, headers: Record<string, string>) => loopback.isCrossSite({ host, ...headers });

  test.each([
    ['no Origin', {}],
    ['the same host', { origin: 'http://127.0.0.1:8888' }],
    ['the same host, another port', { origin: 'http://127.0.0.1:5173' }],
    ['another loopback name', { origin: 'http://localhost:5173' }],
    ['Sec-Fetch-Site: same-origin', { 'sec-fetch-site': 'same-origin' }],
    ['Sec-Fetch-Site: none', { 'sec-fetch-site': 'none' }],
  ])('%s is of this site', (_, headers) => expect(isCrossSite('127.0.0.1:8888', headers)).toBe(false));

  test.each([
    ['another host', { origin: 'http://evil.example' }],
    ['a name that begins alike', { origin: 'http://127.0.0.1.evil.example' }],
    ['null', { origin: 'null' }],
    ['another scheme', { origin: 'chrome-extension://abcdef' }],
    ['nonsense', { origin: 'http://127.0.0.1@evil.example' }],
    ['Sec-Fetch-Site: cross-site', { 'sec-fetch-site': 'cross-site', origin: 'http://127.0.0.1:8888' }],
  ])('%s is cross-site', (_, headers) => expect(isCrossSite('127.0.0.1:8888', headers)).toBe(true));

  test('pages of allowedHosts are of this site; a loopback page is not, for a public name', () => {
    expect(open.isCrossSite({ host: '10.0.0.1', origin: 'https://rookery.example.com' })).toBe(false);
    expect(open.isCrossSite({ host: 'rookery.example.com', origin: 'http://localhost:3000' })).toBe(true);
  });
});
