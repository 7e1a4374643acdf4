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
  ])('the Host %s is refused', host => expect(loopback.allowsHost(host, '127.0.0.1')).toBe(false));

  test('the bound address is allowed', () => {
    const rule = createHostRule({ boundHost: '10.1.2.3', allowedHosts: [] });
    expect(rule.allowsHost('10.1.2.3:8888', '10.1.2.3')).toBe(true);
    expect(rule.allowsHost('10.1.2.4:8888', '10.1.2.3')).toBe(false);
  });

  test('the address of the connection is allowed when the server is bound to every address', () => {
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

  test.each<[string, Record<string, string>]>([
    ['no Origin', {}],
    ['the same origin', { origin: 'http://127.0.0.1:8888' }],
    ['the same origin with Sec-Fetch-Site', { origin: 'http://127.0.0.1:8888', 'sec-fetch-site': 'same-origin' }],
    [
      'https behind a proxy that sends X-Forwarded-Proto',
      { origin: 'https://127.0.0.1:8888', 'x-forwarded-proto': 'https' },
    ],
    ['Sec-Fetch-Site: same-origin', { 'sec-fetch-site': 'same-origin' }],
    ['Sec-Fetch-Site: none', { 'sec-fetch-site': 'none' }],
  ])('a request with %s counts as same-origin', (_, headers) =>
    expect(isCrossSite('127.0.0.1:8888', headers)).toBe(false),
  );

  test.each([
    ['127.0.0.1', 'http://127.0.0.1'],
    ['127.0.0.1:80', 'http://127.0.0.1'],
    ['[::1]:8888', 'http://[::1]:8888'],
    ['LOCALHOST:8888', 'http://localhost:8888'],
  ])('Host %s is of the origin %s', (host, origin) => expect(isCrossSite(host, { origin })).toBe(false));

  test.each<[string, Record<string, string>]>([
    ['another port: a published one', { origin: 'http://127.0.0.1:5173' }],
    ['another port, which the browser calls the same site', { 'sec-fetch-site': 'same-site' }],
    ['another port with Sec-Fetch-Site same-site', { 'sec-fetch-site': 'same-site', origin: 'http://127.0.0.1:5173' }],
    ['no port', { origin: 'http://127.0.0.1' }],
    ['another loopback name', { origin: 'http://localhost:8888' }],
    ['another loopback address', { origin: 'http://127.0.0.2:8888' }],
    ['the loopback of IPv6', { origin: 'http://[::1]:8888' }],
    ['another scheme on the same port', { origin: 'https://127.0.0.1:8888' }],
    ['http, although a proxy in front spoke https', { origin: 'http://127.0.0.1:8888', 'x-forwarded-proto': 'https' }],
    ['another host', { origin: 'http://evil.example' }],
    ['a name with the same beginning', { origin: 'http://127.0.0.1.evil.example' }],
    ['a name with a dot at its end', { origin: 'http://127.0.0.1.:8888' }],
    ['null', { origin: 'null' }],
    ['null with Sec-Fetch-Site same-origin', { origin: 'null', 'sec-fetch-site': 'same-origin' }],
    ['an empty Origin', { origin: '' }],
    ['two Origins', { origin: 'http://127.0.0.1:8888, http://evil.example' }],
    ['the scheme of an extension', { origin: 'chrome-extension://abcdef' }],
    ['a user name in the origin', { origin: 'http://127.0.0.1@evil.example' }],
    ['a path', { origin: 'http://127.0.0.1:8888/' }],
    ['Sec-Fetch-Site: cross-site', { 'sec-fetch-site': 'cross-site', origin: 'http://127.0.0.1:8888' }],
    ['two Sec-Fetch-Sites', { 'sec-fetch-site': 'same-origin, cross-site' }],
    ['an unknown Sec-Fetch-Site', { 'sec-fetch-site': 'sibling' }],
  ])('%s is a foreign origin', (_, headers) => expect(isCrossSite('127.0.0.1:8888', headers)).toBe(true));

  test.each<[string, Record<string, string>]>([
    ['over TLS', { host: '10.0.0.1', origin: 'https://rookery.example.com' }],
    ['over TLS of a proxy that keeps the Host', { host: 'rookery.example.com', origin: 'https://rookery.example.com' }],
    [
      'over TLS of a proxy on another port',
      { host: 'rookery.example.com:8443', origin: 'https://rookery.example.com:8443' },
    ],
    ['of the same site', { host: 'inner:8080', origin: 'https://rookery.example.com', 'sec-fetch-site': 'same-site' }],
    ['with its port', { host: '10.0.0.1', origin: 'http://inner:8080' }],
  ])('a page of allowedHosts is accepted: %s', (_, headers) => expect(open.isCrossSite(headers)).toBe(false));

  test.each<[string, Record<string, string>]>([
    ['a loopback page', { host: 'rookery.example.com', origin: 'http://localhost:3000' }],
    ['another port of a name', { host: 'rookery.example.com', origin: 'https://rookery.example.com:9000' }],
    ['another port than that of allowedHosts', { host: '10.0.0.1', origin: 'http://inner:8081' }],
    ['a subdomain', { host: 'rookery.example.com', origin: 'https://user.rookery.example.com' }],
    ['of the same site', { host: 'rookery.example.com', 'sec-fetch-site': 'same-site' }],
  ])('a page of a foreign origin is refused: %s', (_, headers) => expect(open.isCrossSite(headers)).toBe(true));
});
